// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lacksEnv names features of the host's kernel, separated by commas, that a test hides
// from lklrun and lklhost (csrc/base/features.c).
const lacksEnv = "LKLRUN_TEST_LACKS"

// Names of these features. lklhost knows the last two as well.
const (
	lacksNotify   = "notify"
	lacksAddFD    = "addfd"
	lacksSend     = "addfd-send"
	lacksKillable = "wait-killable"
)

// seccomp calls seccomp(2) for operations whose argument is one number.
func seccomp(op uintptr, arg *uint32) error {
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, op, 0, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}

// Notification describes the host's seccomp user notification, which the engine
// supervise uses.
type Notification struct {
	// TwoSteps: the kernel adds a descriptor to a waiting process and answers the
	// process's call in two steps (no SECCOMP_ADDFD_FLAG_SEND).
	TwoSteps bool
	// Interruptible: any signal interrupts a call that lklhost has received (no
	// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).
	Interruptible bool
}

// MissingFeatures names the missing features.
func (n Notification) MissingFeatures() []string {
	var lacks []string
	if n.TwoSteps {
		lacks = append(lacks, "SECCOMP_ADDFD_FLAG_SEND")
	}
	if n.Interruptible {
		lacks = append(lacks, "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV")
	}
	return lacks
}

// Limits describes what programs notice of the missing features; empty: nothing.
func (n Notification) Limits() string {
	if !n.Interruptible {
		return ""
	}
	limits := "a signal with a handler can lose the result of the call that it interrupts"
	if n.TwoSteps {
		limits += ", and leave an unused descriptor"
	}
	return fmt.Sprintf("%s (the kernel lacks %s)", limits, strings.Join(n.MissingFeatures(), " and "))
}

// notification is the result of LookNotification, which needs a thread of its own.
var notification = sync.OnceValues(LookNotification)

// LookNotification examines the host's seccomp user notification. It returns an error
// if the engine supervise cannot use it.
func LookNotification() (Notification, error) {
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	err := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, &action)
	if hidden(lacksNotify) {
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return Notification{}, fmt.Errorf("this kernel has no seccomp user notification (%w), which the engine supervise requires (CONFIG_SECCOMP_FILTER)", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_PIDFD_GETFD, ^uintptr(0), ^uintptr(0), 0); errno == unix.ENOSYS {
		return Notification{}, errors.New("no process can duplicate a descriptor of another one here, which the engine supervise requires: the kernel lacks pidfd_getfd, or a seccomp filter forbids it")
	}
	type result struct {
		n   Notification
		err error
	}
	c := make(chan result)
	go func() {
		// Filters and no_new_privs belong to a thread, which ends with this goroutine.
		runtime.LockOSThread()
		n, err := tryNotification()
		c <- result{n, err}
	}()
	r := <-c
	return r.n, r.err
}

// tryNotification installs a filter that allows every call, and tries requests of its
// listener.
func tryNotification() (n Notification, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return n, fmt.Errorf("setting no_new_privs: %w", err)
	}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	listener, errno := install(flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	n.Interruptible = errno == unix.EINVAL || hidden(lacksKillable)
	if errno == unix.EINVAL {
		listener, errno = install(flags)
	}
	if errno == unix.EINVAL {
		return n, errors.New("no seccomp user notification, which the engine supervise requires: the kernel or a seccomp filter refuses SECCOMP_FILTER_FLAG_NEW_LISTENER")
	}
	if errno != 0 {
		// Another supervisor has a listener for this process (EBUSY), or a security
		// module refuses this one. lklhost reports that when it installs its own.
		return n, nil //nolint:nilerr // see above
	}
	defer unix.Close(int(listener))
	// The kernel checks the flags first, so a request without a descriptor to add
	// shows which flags it knows.
	knows := func(flags uint32) bool {
		add := struct {
			id                              uint64
			flags, srcfd, newfd, newfdFlags uint32
		}{flags: flags, srcfd: ^uint32(0)}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(&add)))
		return errno == unix.EBADF
	}
	if !knows(0) || hidden(lacksAddFD) {
		return n, errors.New("this kernel cannot add a descriptor to a process that waits for a seccomp notification (SECCOMP_IOCTL_NOTIF_ADDFD), which the engine supervise requires")
	}
	n.TwoSteps = !knows(unix.SECCOMP_ADDFD_FLAG_SEND) || hidden(lacksSend)
	return n, nil
}

// install installs a filter that allows every call, and returns its listener.
func install(flags uintptr) (listener uintptr, errno unix.Errno) {
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	prog := unix.SockFprog{Len: 1, Filter: &allow}
	listener, _, errno = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	return listener, errno
}
