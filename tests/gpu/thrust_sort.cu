/* SPDX-License-Identifier: Apache-2.0
 *
 * A Thrust program as people write them: each pass makes its vectors anew (sequence, sort, copy,
 * scan, reduce over 10 M integers), and Thrust takes its temporary memory by cudaMalloc. "keep"
 * does the same work with memory that is allocated once: no allocator can make a pass faster than
 * that. The only C++ here. Usage: thrust_sort [passes [keep]]. Prints pass_ms (median) and the
 * checksum.
 */
#include <map>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <vector>
#include "gpu.h"

static const unsigned COUNT = 10000000;

/* Temporary memory that is never given back, by size. */
struct Kept {
    typedef char value_type;
    std::multimap<size_t, char *> blocks;

    char *allocate(std::ptrdiff_t bytes)
    {
        auto found = blocks.find((size_t)bytes);
        char *block = NULL;
        if (found != blocks.end()) {
            block = found->second;
            blocks.erase(found);
        } else {
            RT(cudaMalloc(&block, (size_t)bytes));
        }
        return block;
    }

    void deallocate(char *block, size_t bytes)
    {
        blocks.emplace(bytes, block);
    }
};

template <typename Policy>
static int work(const Policy &policy, thrust::device_vector<int> &keys,
                thrust::device_vector<int> &sums)
{
    thrust::sequence(policy, keys.begin(), keys.end(), (int)COUNT, -1);
    thrust::sort(policy, keys.begin(), keys.end());
    thrust::copy(policy, keys.begin(), keys.end(), sums.begin());
    thrust::inclusive_scan(policy, sums.begin(), sums.end(), sums.begin());
    return thrust::reduce(policy, sums.begin(), sums.end());
}

/* The element read back is checked too: a wrong sort can have the right sum. */
static int pass(bool look)
{
    thrust::device_vector<int> keys(COUNT);
    thrust::device_vector<int> sums(COUNT);
    int sum = work(thrust::device, keys, sums);
    return look ? sum ^ keys[COUNT / 3] : sum;
}

/* A new vector is filled: so are the kept ones. */
static int pass_kept(void)
{
    static Kept kept;
    static thrust::device_vector<int> keys(COUNT);
    static thrust::device_vector<int> sums(COUNT);
    auto policy = thrust::cuda::par(kept);
    thrust::fill(policy, keys.begin(), keys.end(), 0);
    thrust::fill(policy, sums.begin(), sums.end(), 0);
    return work(policy, keys, sums);
}

int main(int argc, char **argv)
{
    int passes = argc > 1 ? atoi(argv[1]) : 200;
    bool keep = argc > 2;
    int checksum = 0;
    std::vector<double> pass_ms;
    for (int i = -10; i < passes; i++) {
        double start = now_us();
        int sum = keep ? pass_kept() : pass(false);
        if (i > -10 && sum != checksum) {
            printf("pass %d gave %d, the one before %d\n", i, sum, checksum);
            return 1;
        }
        checksum = sum;
        if (i >= 0) {
            pass_ms.push_back((now_us() - start) / 1e3);
        }
    }
    put("pass_ms", median(pass_ms.data(), pass_ms.size()));
    printf("checksum=%d,%d\n", checksum, pass(true));
    return 0;
}
