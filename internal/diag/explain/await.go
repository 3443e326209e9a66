// SPDX-License-Identifier: Apache-2.0

//go:build !device

package explain

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/procstat"
)

// oldCalls are the numbers of poll(2), select(2) and epoll_wait(2), which newer CPUs have only in
// other forms.
var oldCalls = map[string][3]int64{"amd64": {7, 23, 232}, "arm": {168, 142, 252}, "arm64": {-2, -2, -2}}[runtime.GOARCH]

// pollMost is the largest number of descriptors of one poll(2) to look at.
const pollMost = 1024

// awaits reports whether a thread of a process waits until it can read from one of its descriptors
// (proc_pid_syscall(5)).
func awaits(pid int, fds []int) (most Await) {
	threads, _ := filepath.Glob(fmt.Sprintf("%s/%d/task/*/syscall", procstat.Root, pid)) // the pattern is valid
	if len(threads) == 0 {
		return Unknown
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			most = max(most, Unknown) // we may not trace the process, or the thread has ended
			continue
		}
		var call int64
		var a, b uint64
		if n, _ := fmt.Sscanf(string(text), "%d %v %v", &call, &a, &b); n < 3 {
			continue // it runs, and so waits for nothing
		}
		most = max(most, waitsIn(pid, call, a, b, fds))
	}
	return most
}

// waitsIn examines a system call with its first two arguments.
func waitsIn(pid int, call int64, a, b uint64, fds []int) Await {
	ours := func(fd int) bool { return slices.Contains(fds, fd) }
	switch call {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG:
		if ours(int(int32(a))) {
			return Receive
		}
	case unix.SYS_PPOLL, oldCalls[0]:
		const size = 8 // of struct pollfd
		for p := memory(pid, a, size*min(b, pollMost)); len(p) >= size; p = p[size:] {
			if ours(int(int32(binary.NativeEndian.Uint32(p)))) && binary.NativeEndian.Uint16(p[4:])&unix.POLLIN != 0 {
				return Receive
			}
		}
	case unix.SYS_PSELECT6, oldCalls[1]:
		set := memory(pid, b, (min(a, pollMost)+7)/8)
		for _, fd := range fds {
			if fd/8 < len(set) && set[fd/8]&(1<<(fd%8)) != 0 { // little endian
				return Receive
			}
		}
	case unix.SYS_EPOLL_PWAIT, oldCalls[2]:
		list, _ := os.ReadFile(fmt.Sprintf("%s/%d/fdinfo/%d", procstat.Root, pid, int32(a))) // without it, nothing is known
		for line := range strings.Lines(string(list)) {
			var fd int
			if n, _ := fmt.Sscanf(line, "tfd: %d", &fd); n == 1 && ours(fd) {
				return Events
			}
		}
	}
	return Elsewhere
}

// memory reads memory of a process. It returns nothing if that is not permitted.
func memory(pid int, at, size uint64) []byte {
	f, err := os.Open(fmt.Sprintf("%s/%d/mem", procstat.Root, pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, size)
	n, _ := f.ReadAt(b, int64(at)) // what can be read
	return b[:n]
}
