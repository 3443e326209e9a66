// SPDX-License-Identifier: Apache-2.0

package hostnet

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

// OpThreaded gives a tap back what its attribute `threaded` was. Old, New: its text.
const OpThreaded = "threaded"

// errNoThread says that the host does not read a tap with a thread for us.
var errNoThread = errors.New("no thread of the host's for this tap")

const threadOn = "1"

// waitingMax is what may wait for that thread, as memory in bytes: more than TCP has
// under way. Without a limit one who floods the tap fills the host's memory, and the
// host (seen with Linux 6.18) gives frames memory that GRO takes over without telling
// the tap's socket, which then is never freed, nor is its network namespace.
const waitingMax = 16 << 20

// attachThreaded attaches with IFF_NAPI and `threaded`: written frames wait in a
// queue, and a thread of the host's, napi/NAME-N, makes large packets of them
// (GRO) before it receives them. Frames of 1,514 bytes go through twice as fast
// so, but without the thread slower than without IFF_NAPI, hence both or neither.
// A device has the attribute since Linux 5.12, and it can be set only while
// somebody is attached with IFF_NAPI (net/core/net-sysfs.c, dev_set_threaded).
func (t *Tap) attachThreaded(journal func(Undo) error) (int, error) {
	sys, err := ownSysfs()
	if err != nil {
		return -1, errNoThread
	}
	defer unix.Close(sys)
	old := threadOn // of a device that goes with its descriptor there is nothing to undo
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

// undoThreaded attaches to the tap for a moment, for without that it cannot be
// set. Who has the tap by now keeps it as it is.
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

// ownSysfs is a sysfs of this thread's network namespace, mounted nowhere. /sys may
// be another one's, and read-only. It takes CAP_SYS_ADMIN in the namespace, and who
// has not got that may not set the attribute either, or hardly: it is root's file.
func ownSysfs() (int, error) {
	if !Capable(unix.CAP_SYS_ADMIN) {
		return -1, unix.EPERM
	}
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("opening a sysfs: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("making a sysfs: %w", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mounting a sysfs: %w", err)
	}
	return mnt, nil
}

func openThreaded(sys int, dev string, mode int) (*os.File, error) {
	name := path.Join("class/net", dev, "threaded")
	fd, err := unix.Openat(sys, name, mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s of the sysfs: %w", name, err)
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
		return fmt.Errorf("setting threaded of %s to %s: %w", dev, value, err)
	}
	return nil
}
