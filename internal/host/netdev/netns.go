// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Boot identifies the boot of the host's kernel.
var Boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // "": not known
	return strings.TrimSpace(string(b))
})

// NetnsCookie returns a number that identifies this thread's network namespace
// until the next boot. It returns 0 on a kernel before Linux 5.14.
func NetnsCookie() uint64 {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0
	}
	return cookie
}

// NsenterArgs returns the first words of a command line that runs a program in a
// network namespace. netns has the form of the link /proc/PID/ns/net. The
// result is nil if no process or name leads to the namespace.
func NsenterArgs(netns string) []string {
	inode, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(netns, "net:["), "]"), 10, 64)
	if err != nil {
		return nil
	}
	names, _ := filepath.Glob("/run/netns/*") // a constant pattern is always valid
	for _, name := range names {
		var st unix.Stat_t
		var fs unix.Statfs_t
		if unix.Stat(name, &st) == nil && st.Ino == inode && unix.Statfs(name, &fs) == nil && fs.Type == unix.NSFS_MAGIC {
			return []string{"ip", "netns", "exec", filepath.Base(name)}
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, p := range procs {
		if to, err := os.Readlink(p); err == nil && to == netns {
			return []string{"nsenter", "-t", strings.Split(p, "/")[2], "-n"}
		}
	}
	return nil
}
