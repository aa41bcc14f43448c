/* void* dlsym(void* handle, const char* name)
 *
 * Asks polypath_shim_lookup(handle, name, caller) for a replacement; without one it jumps to the loader's own
 * dlsym with the caller's arguments and return address, because RTLD_NEXT and RTLD_DEFAULT mean something
 * that depends on who asks. */
        .text
        .globl  dlsym
        .type   dlsym, @function
dlsym:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        mov     24(%rsp), %rdx
        call    polypath_shim_lookup
        add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop     %rsi
        .cfi_adjust_cfa_offset -8
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        test    %rax, %rax
        jnz     1f
        jmp     *polypath_shim_real_dlsym(%rip)
1:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym
        .section .note.GNU-stack, "", @progbits
