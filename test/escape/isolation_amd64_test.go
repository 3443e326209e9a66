// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// inject makes a process that waits in a system call make another call instead. It
// returns the result, or the signal that killed the process.
func inject(t *testing.T, pid int, nr uint64, args ...uint64) (int64, unix.Signal) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var status unix.WaitStatus
	stop := func(err error) {
		t.Helper()
		if err == nil {
			_, err = unix.Wait4(pid, &status, unix.WALL, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var was, regs unix.PtraceRegs
	waits := func() bool { // inside a call, not about to make one
		stop(unix.PtraceAttach(pid))
		if err := unix.PtraceGetRegs(pid, &was); err != nil {
			t.Fatal(err)
		}
		insn := make([]byte, 2)
		if _, err := unix.PtracePeekText(pid, uintptr(was.Rip-2), insn); err == nil && int64(was.Orig_rax) >= 0 && string(insn) == "\x0f\x05" {
			return true
		}
		if err := unix.PtraceDetach(pid); err != nil {
			t.Fatal(err)
		}
		return false
	}
	if !kit.Within(kit.Limit, waits) {
		t.Fatalf("process %d never waits in a call", pid)
	}
	regs = was
	regs.Rip -= 2 // back to the syscall instruction
	regs.Rax, regs.Orig_rax = nr, ^uint64(0)
	for i, r := range []*uint64{&regs.Rdi, &regs.Rsi, &regs.Rdx} {
		if i < len(args) {
			*r = args[i]
		}
	}
	if err := unix.PtraceSetRegs(pid, &regs); err != nil {
		t.Fatal(err)
	}
	stop(unix.PtraceSingleStep(pid))
	if status.Signaled() {
		return 0, status.Signal()
	}
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceSetRegs(pid, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		t.Fatal(err)
	}
	return int64(regs.Rax), 0
}

// TestFinding15Filter checks that an attacker in lklhost can neither start a program or a
// process, nor create a network socket. The host's kernel kills lklhost, and lklrun's
// changes to the host are undone.
func TestFinding15Filter(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			s := kit.NewSite(t)
			before := kit.Take(t, s.Server)
			for name, call := range map[string][]uint64{
				"execve": {unix.SYS_EXECVE}, "fork": {unix.SYS_CLONE, uint64(unix.SIGCHLD)}, "mount": {unix.SYS_MOUNT},
				"setns": {unix.SYS_SETNS, 0, 0}, "ptrace": {unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1}, "unshare": {unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
			} {
				k := s.Talk("-q", "--engine", engine, "--if", "tap:new0,ip=10.75.0.1/24")
				k.Say("1")
				host := kit.ProcessOf(t, k, "host_pid")
				if got, sig := inject(t, host, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0); sig != 0 || got != -int64(unix.EAFNOSUPPORT) {
					t.Errorf("socket(AF_INET): %d, signal %d", got, sig)
				}
				if got, sig := inject(t, host, unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0); sig != 0 || got < 0 {
					t.Errorf("socket(AF_UNIX): %d, signal %d", got, sig)
				}
				if got, sig := inject(t, host, call[0], call[1:]...); sig != unix.SIGSYS {
					t.Errorf("%s: %d, signal %d", name, got, sig)
				}
				k.Proc.Wait(kit.Limit)
				before.Settles(kit.Limit)
			}
		})
	}
}
