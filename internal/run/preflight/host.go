// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/netdev"
)

// CheckNotification returns an error if the host's kernel lacks seccomp user
// notification or a feature of it that the engine requires.
func CheckNotification() error {
	_, err := notification()
	return err
}

// CheckFilter returns an error if the host's kernel does not support seccomp
// filters. The engine preload then runs without a filter.
func CheckFilter() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action); err != nil {
		return fmt.Errorf("this kernel has no seccomp filters (%w): with the engine preload, only an empty network namespace isolates calls that the library does not intercept from the host's network", err)
	}
	return nil
}

// fuseDevice is the device through which lklhost serves the stack's files
// (csrc/view).
const fuseDevice = "/dev/fuse"

// CheckFuse explains why the target cannot see the stack's files: /proc/net,
// /proc/sys/net and /sys/class/net.
func CheckFuse() error {
	fd, err := unix.Open(fuseDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s does not exist; run `modprobe fuse` as root, or in a container, pass the device in", fuseDevice)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: uid %d has no permission to open it; as root, run `setfacl -m u:%[2]d:rw %[1]s`, or in a container, pass the device in", fuseDevice, os.Geteuid())
	case err != nil:
		return fmt.Errorf("opening %s: %w", fuseDevice, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("inspecting %s: %w", fuseDevice, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(10, 229) { // number of /dev/fuse, Documentation/admin-guide/devices.txt
		return fmt.Errorf("%s is a different device; as root, recreate it with `mknod -m 666 %[1]s c 10 229`", fuseDevice)
	}
	return nil
}

// NeedsUserNamespaces reports whether a run must create the target's network
// namespace inside a user namespace. This is the case for processes without
// CAP_SYS_ADMIN. The target then has no_new_privs set.
func NeedsUserNamespaces() bool { return !netdev.Capable(unix.CAP_SYS_ADMIN) }

// MakeNamespaces tries to create the namespaces of a run by a user without
// CAP_SYS_ADMIN: a user namespace with our own user and group IDs, and a network
// namespace in it.
func MakeNamespaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "version")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
	}
	return cmd.Run()
}

// LookConfinement returns the means that the engine preload lacks to isolate a program
// from the host's network. It returns an error if it has none.
func LookConfinement(ctx context.Context, makeNamespaces func(context.Context) error, checkFilter func() error) (lacks []string, err error) {
	if !NeedsUserNamespaces() {
		return nil, nil
	}
	return confinement(makeNamespaces(ctx), checkFilter())
}

// confinement is LookConfinement with the errors of the two means.
func confinement(namespace, filter error) (lacks []string, err error) {
	switch {
	case namespace == nil:
		return nil, nil
	case filter != nil:
		return nil, fmt.Errorf("%w; but this host allows no network namespace (%w); run lklrun as root, or allow user namespaces (sysctl user.max_user_namespaces)", filter, namespace)
	}
	return []string{"a network namespace"}, nil
}

// CheckUserNamespaces names the host's setting that prevents this user from
// creating user namespaces.
func CheckUserNamespaces() error { return checkUserNamespaces(readText) }

func checkUserNamespaces(read func(path string) string) error {
	for _, s := range []struct{ sysctl, remedy string }{
		{"user.max_user_namespaces", "sysctl -w user.max_user_namespaces=10000"},
		{"kernel.unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1"},
	} {
		path := "/proc/sys/" + strings.ReplaceAll(s.sysctl, ".", "/")
		if strings.TrimSpace(read(path)) == "0" {
			return fmt.Errorf("this host does not allow ordinary users to create user namespaces (%s is 0); as root, run `%s`, or run lklrun as root", s.sysctl, s.remedy)
		}
	}
	return nil
}

func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
