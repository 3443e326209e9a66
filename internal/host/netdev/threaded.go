// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpThreaded restores the attribute `threaded` of a tap. Old and New are its
// values as text.
const OpThreaded = "threaded"

// errNoThread reports that no kernel thread of the host can read the tap.
var errNoThread = errors.New("the host has no NAPI thread for this tap")

const threadOn = "1"

// waitingMax limits the memory, in bytes, of the frames that wait for that
// thread. It is more than TCP has in flight. Without a limit, a program that
// floods the tap fills the host's memory. On Linux 6.18, GRO can also take over
// the memory of frames without telling the tap's socket. Then neither the
// socket nor its network namespace is ever freed.
const waitingMax = 16 << 20

// attachThreaded attaches with IFF_NAPI and sets `threaded`. Written frames
// then wait in a queue, and the kernel thread napi/NAME-N merges them into
// large packets (GRO) before the host receives them. Throughput for frames of
// 1,514 bytes doubles. Without the thread, IFF_NAPI is slower than no IFF_NAPI,
// so the two are used together or not at all. Linux 5.12 introduced the
// attribute. It can be set only while a process is attached with IFF_NAPI
// (net/core/net-sysfs.c, dev_set_threaded).
func (t *Tap) attachThreaded(journal func(Undo) error) (int, error) {
	sys, err := ownSysfs()
	if err != nil {
		return -1, errNoThread
	}
	defer unix.Close(sys)
	old := threadOn // a device that vanishes with its descriptor needs no undo
	if !t.Created {
		if old, err = readThreaded(sys, t.Name); err != nil {
			return -1, errNoThread
		}
	}
	fd, err := t.attachAs(unix.IFF_NAPI)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETSNDBUF, waitingMax); err != nil {
		unix.Close(fd)
		return -1, errNoThread
	}
	if old != threadOn {
		ifi, err := net.InterfaceByName(t.Name)
		if err == nil {
			err = journal(Undo{Op: OpThreaded, Name: t.Name, Ifindex: ifi.Index, Netns: netnsID(), Old: old, New: threadOn})
		}
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	if err := writeThreaded(sys, t.Name, threadOn); err != nil {
		unix.Close(fd)
		return -1, errNoThread
	}
	return fd, nil
}

// undoThreaded attaches to the tap briefly, because the attribute cannot be set
// otherwise. If another process has the tap by now, the attribute stays
// unchanged.
func undoThreaded(_ context.Context, u Undo) error {
	ifi, err := net.InterfaceByIndex(u.Ifindex)
	if err != nil || ifi.Name != u.Name {
		return nil
	}
	sys, err := ownSysfs()
	if err != nil {
		return err
	}
	defer unix.Close(sys)
	if now, err := readThreaded(sys, u.Name); err != nil || now != u.New {
		return err
	}
	t := &Tap{Name: u.Name, Ifindex: u.Ifindex}
	fd, err := t.attachAs(unix.IFF_NAPI)
	var taken *InUseError
	if errors.As(err, &taken) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return writeThreaded(sys, u.Name, u.Old)
}

// ownSysfs opens a new sysfs of this thread's network namespace, without
// mounting it. /sys may belong to another namespace and be read-only. This
// needs CAP_SYS_ADMIN in the namespace. Users without it can hardly set the
// attribute anyway, because the file belongs to root.
func ownSysfs() (int, error) {
	if !Capable(unix.CAP_SYS_ADMIN) {
		return -1, unix.EPERM
	}
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening a sysfs instance: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("creating a sysfs instance: %w", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mounting a sysfs instance: %w", err)
	}
	return mnt, nil
}

func openThreaded(sys int, dev string, mode int) (*os.File, error) {
	name := path.Join("class/net", dev, "threaded")
	fd, err := unix.Openat(sys, name, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s in sysfs: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readThreaded(sys int, dev string) (string, error) {
	f, err := openThreaded(sys, dev, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 16)
	n, err := f.Read(b)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func writeThreaded(sys int, dev, value string) error {
	f, err := openThreaded(sys, dev, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("setting `threaded` of %s to %s: %w", dev, value, err)
	}
	return nil
}
