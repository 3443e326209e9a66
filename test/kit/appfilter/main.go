// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

// Command appfilter executes a command under a seccomp filter with the system calls that
// Android 11 allows to apps. As on Android, any other call raises SIGSYS.
//
//	appfilter [-libc] COMMAND [ARG...]
//
// Programs of Debian's C library cannot start under this filter, because the library makes
// calls before main() that bionic does not make. With -libc, these calls fail with ENOSYS
// instead.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// debian are the calls of glibc that bionic does not make, and that glibc makes before
// main() or while it blocks all signals.
var debian = append(debianOld, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_CLONE3)

// filter returns the filter. It first compares the architecture, then the number of the
// call.
func filter(missing []uint32) []unix.SockFilter {
	const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	prog := []unix.SockFilter{
		{Code: load, K: 4}, // seccomp_data.arch
		{Code: equal, K: arch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_TRAP},
		{Code: load, K: 0}, // seccomp_data.nr
	}
	each := func(calls []uint32, action uint32) {
		for _, nr := range calls {
			prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: ret, K: action})
		}
	}
	each(missing, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	each(slices.Concat(allowed, allowedHere), unix.SECCOMP_RET_ALLOW)
	return append(prog, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_TRAP})
}

func run(args []string) error {
	var missing []uint32
	if len(args) > 0 && args[0] == "-libc" {
		missing, args = debian, args[1:]
	}
	if len(args) == 0 {
		return fmt.Errorf("usage: appfilter [-libc] COMMAND [ARG...]")
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the filter belongs to this thread, which executes the command
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	prog := filter(missing)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return fmt.Errorf("installing the filter: %w", errno)
	}
	return unix.Exec(path, args, os.Environ())
}

func main() {
	err := run(os.Args[1:])
	fmt.Fprintln(os.Stderr, "appfilter:", err)
	os.Exit(127)
}
