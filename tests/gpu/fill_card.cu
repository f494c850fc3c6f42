/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the card to 95 % with mixed sizes and checks every byte pattern; frees all; asks for 95 %
 * of the reported free memory in one piece; fills it again with other sizes; frees every second
 * block and fills the hole with yet others. Cached blocks of the wrong size must make room each
 * time. Prints how far each fill got (share of what it aimed at), the mallocs refused, blocks with
 * wrong bytes and what cudaMemGetInfo said in between, as shares of the free memory at the start.
 */
#include <vector>
#include <cuda_runtime.h>
#include "gpu.h"

struct block {
    unsigned char *base;
    size_t bytes;
    unsigned char tag;
};

static std::vector<block> blocks;
static unsigned long random_state = 88172645463325252ul;
static int refused;

static unsigned long next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static size_t free_bytes(void)
{
    size_t left = 0, total = 0;
    RT(cudaMemGetInfo(&left, &total));
    return left;
}

/* From half of `scale` to one and a half, never a round number. */
static size_t random_size(size_t scale)
{
    return scale / 2 + next_random() % scale + 1;
}

static bool add_block(size_t bytes)
{
    void *base = NULL;
    if (cudaMalloc(&base, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        refused++;
        return false;
    }
    block made = {(unsigned char *)base, bytes, (unsigned char)(next_random() | 1)};
    RT(cudaMemset(base, made.tag, bytes));
    blocks.push_back(made);
    return true;
}

/* Allocates until `target` more bytes are live or a malloc is refused; returns the share reached.
 */
static double fill(size_t target, const size_t *scales, size_t count)
{
    size_t done = 0;
    for (size_t i = 0; done < target; i++) {
        size_t bytes = random_size(scales[i % count]);
        if (bytes > target - done) {
            bytes = target - done;
        }
        if (!add_block(bytes)) {
            break;
        }
        done += bytes;
    }
    return (double)done / (double)target;
}

static int wrong_blocks(void)
{
    int wrong = 0;
    RT(cudaDeviceSynchronize());
    for (const block &each : blocks) {
        unsigned char ends[3];
        RT(cudaMemcpy(&ends[0], each.base, 1, cudaMemcpyDeviceToHost));
        RT(cudaMemcpy(&ends[1], each.base + each.bytes / 2, 1, cudaMemcpyDeviceToHost));
        RT(cudaMemcpy(&ends[2], each.base + each.bytes - 1, 1, cudaMemcpyDeviceToHost));
        wrong += ends[0] != each.tag || ends[1] != each.tag || ends[2] != each.tag;
    }
    return wrong;
}

/* Frees every `step`th block in a shuffled order, returns the bytes. */
static size_t release(size_t step)
{
    std::vector<block> kept, going;
    size_t bytes = 0;
    for (size_t i = 0; i < blocks.size(); i++) {
        (i % step == 0 ? going : kept).push_back(blocks[i]);
    }
    for (size_t i = going.size(); i > 0; i--) {
        size_t at = next_random() % i;
        RT(cudaFree(going[at].base));
        bytes += going[at].bytes;
        going[at] = going[i - 1];
    }
    blocks = kept;
    return bytes;
}

int main(void)
{
    const size_t mixed[] = {KIB(300), MIB(3), MIB(20), MIB(700), MIB(100), GIB(1)};
    const size_t other[] = {MIB(50), MIB(450), MIB(7), GIB(2)};
    const size_t third[] = {MIB(13), MIB(130), MIB(290)};
    int wrong = 0;
    RT(cudaFree(NULL));
    const double start = (double)free_bytes();

    put("fill_mixed", fill((size_t)(start * 0.95), mixed, 6));
    put("blocks_mixed", (double)blocks.size());
    put("free_when_full", (double)free_bytes() / start);
    wrong += wrong_blocks();
    release(1);
    put("free_after_free", (double)free_bytes() / start);

    void *piece = NULL;
    size_t piece_bytes = (size_t)((double)free_bytes() * 0.95);
    int piece_rc = (int)cudaMalloc(&piece, piece_bytes);
    (void)cudaGetLastError();
    put("one_piece_rc", piece_rc);
    RT(cudaFree(piece));

    put("fill_other", fill((size_t)(start * 0.95), other, 4));
    wrong += wrong_blocks();
    release(2);
    double hole = (double)free_bytes();
    put("free_after_half", hole / start);
    put("fill_hole", fill((size_t)(hole * 0.95), third, 3));
    wrong += wrong_blocks();
    release(1);
    put("free_at_end", (double)free_bytes() / start);
    put("refused", refused);
    put("wrong", wrong);
    return 0;
}
