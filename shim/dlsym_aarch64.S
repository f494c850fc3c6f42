/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported dlsym for aarch64: see dlsym_x86_64.S for why it jumps.
 */
#if defined(__aarch64__)
    .text
    .globl  dlsym
    .type   dlsym, %function
    .p2align 4
dlsym:
    .cfi_startproc
    hint    #34 /* bti c */
    /* RTLD_NEXT is -1, RTLD_DEFAULT 0. */
    add     x2, x0, #1
    cmp     x2, #1
    b.ls    1f
    cbz     x1, 1f
    ldrb    w2, [x1]
    cmp     w2, #'c'
    b.ne    1f
    ldrb    w2, [x1, #1]
    cmp     w2, #'u'
    b.ne    1f
    ldrb    w2, [x1, #2]
    sub     w2, w2, #'A'
    cmp     w2, #25
    b.hi    1f
    b       zone_dlsym_cu
1:
    adrp    x2, zone_dlsym_next
    ldr     x2, [x2, :lo12:zone_dlsym_next]
    cbz     x2, 2f
    br      x2
2:
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    bl      zone_dlsym_find
    mov     x2, x0
    ldp     x0, x1, [sp, #16]
    ldp     x29, x30, [sp], #32
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    br      x2
    .cfi_endproc
    .size   dlsym, .-dlsym
#endif
    .section .note.GNU-stack, "", %progbits
