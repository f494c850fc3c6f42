/* SPDX-License-Identifier: Apache-2.0
 *
 * A Thrust program as people write them: each pass makes its vectors anew (sequence, sort, copy,
 * scan, reduce over 10 M integers), and Thrust takes its temporary memory by cudaMalloc. The only
 * C++ here. Usage: thrust_sort [passes]. Prints pass_ms (median) and the checksum.
 */
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <vector>
#include "gpu.h"

static const unsigned COUNT = 10000000;

/* The element read back is checked too: a wrong sort can have the right sum. */
static int pass(bool look)
{
    thrust::device_vector<int> keys(COUNT);
    thrust::sequence(keys.begin(), keys.end(), (int)COUNT, -1);
    thrust::sort(keys.begin(), keys.end());
    thrust::device_vector<int> sums(COUNT);
    thrust::copy(keys.begin(), keys.end(), sums.begin());
    thrust::inclusive_scan(sums.begin(), sums.end(), sums.begin());
    int sum = thrust::reduce(sums.begin(), sums.end());
    return look ? sum ^ keys[COUNT / 3] : sum;
}

int main(int argc, char **argv)
{
    int passes = argc > 1 ? atoi(argv[1]) : 200;
    int checksum = 0;
    std::vector<double> pass_ms;
    for (int i = -10; i < passes; i++) {
        double start = now_us();
        int sum = pass(false);
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
