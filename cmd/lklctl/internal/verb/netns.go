// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// NetnsFlag adds --netns. The sockets and files that the verb uses then belong to a network
// namespace that a program of the run has made.
func (c *Call) NetnsFlag(f *pflag.FlagSet) {
	f.StringVar(&c.netns, "netns", "", "use the network namespace `PID|NAME`: that of a process of the run, or one of \"ip netns\"")
}

// netnsPath returns the file of the namespace that --netns names.
func (c *Call) netnsPath() string {
	if pid, err := strconv.ParseUint(c.netns, 10, 31); err == nil {
		return fmt.Sprintf("/proc/%d/ns/net", pid)
	}
	if strings.Contains(c.netns, "/") {
		return c.netns
	}
	return filepath.Join("/run/netns", c.netns)
}

// enterNetns makes conn use the namespace of --netns.
func (c *Call) enterNetns(ctx context.Context, info *instance.Info, conn *stackconn.Conn) error {
	if c.netns == "" {
		return nil
	}
	path := c.netnsPath()
	f, err := os.Open(path)
	if err != nil {
		return exit.Usagef("--netns %s: %w", c.netns, err)
	}
	defer f.Close() // no other namespace gets its inode number before
	var st unix.Stat_t
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET || unix.Fstat(int(f.Fd()), &st) != nil {
		return exit.Usagef("--netns %s: %s is not a network namespace", c.netns, path)
	}
	_, err = conn.Netns(ctx, st.Ino)
	switch {
	case errors.Is(err, syscall.ENOENT):
		return exit.Usagef("--netns %s: instance %q has made no such namespace, or no program in it has made a socket; lklctl list --netns shows all", c.netns, info.Name)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return exit.Usagef("--netns: instance %q supports no network namespaces; they need --engine supervise", info.Name)
	}
	return err
}
