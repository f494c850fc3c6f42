/* SPDX-License-Identifier: Apache-2.0
 *
 * The exported dlsym. glibc looks at the return address of its caller for RTLD_NEXT and RTLD_DEFAULT, so
 * everything that is not a look-up of a driver function in a real handle goes on by a jump: the real
 * dlsym then sees the program's own frame.
 */
#if defined(__x86_64__)
    .text
    .globl  dlsym
    .type   dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    endbr64
    /* RTLD_NEXT is -1, RTLD_DEFAULT 0. */
    leaq    1(%rdi), %rax
    cmpq    $1, %rax
    jbe     1f
    testq   %rsi, %rsi
    je      1f
    cmpw    $0x7563, (%rsi) /* "cu", and then a capital letter */
    jne     1f
    movzbl  2(%rsi), %eax
    subl    $'A', %eax
    cmpl    $25, %eax
    jbe     zone_dlsym_cu
1:
    movq    zone_dlsym_next(%rip), %rax
    testq   %rax, %rax
    je      2f
    jmpq    *%rax
2:
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    call    zone_dlsym_find
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    jmpq    *%rax
    .cfi_endproc
    .size   dlsym, .-dlsym
#endif
    .section .note.GNU-stack, "", %progbits
