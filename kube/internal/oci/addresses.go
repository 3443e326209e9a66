// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/instance"
)

// The addresses of a container's interfaces return after the stack has ended, with the
// command delete. Plug-ins for networks read the addresses to find what they must undo;
// the bridge of CNI would otherwise leave its rules for masquerading behind.
//
// A file keeps the addresses, and what the stack of a pod needs to start again. It is not
// in the run directory, which does not exist any more if lklhost was killed.

// An address is one of an interface, such as 10.88.0.2/16 of eth0.
type address struct {
	Link string `json:"link"`
	CIDR string `json:"cidr"`
}

// taken are the addresses that a stack has taken over, with the settings of the stack.
type taken struct {
	Netns      string        `json:"netns"`
	Addresses  []address     `json:"addresses"`
	Interfaces []string      `json:"interfaces"` // for --if
	Stack      string        `json:"stack"`
	Sysctls    []string      `json:"sysctls"`
	Command    []string      `json:"command"`
	Pod        *instance.Pod `json:"pod,omitempty"`
	Socket     string        `json:"socket"` // its name in the run directory
}

// takenFile is the file of a container by the name of its instance.
func takenFile(id string) string { return filepath.Join(takenDir(), id) }

func takenDir() string { return instance.Root() + "-oci" }

// checkTakenDir returns an error if another user can change the folder, which may be in /tmp.
func checkTakenDir() error {
	var st unix.Stat_t
	if err := unix.Lstat(takenDir(), &st); err != nil {
		return fmt.Errorf("checking the folder %s: %w", takenDir(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to another user, or others can use it; remove it", takenDir())
	}
	return nil
}

// keep writes the file.
func (a taken) keep(id string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := takenFile(id)
	if err := os.MkdirAll(takenDir(), 0o700); err != nil {
		return fmt.Errorf("keeping the container's addresses: %w", err)
	}
	if err := checkTakenDir(); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("keeping the container's addresses: %w", err)
	}
	return nil
}

// errNotTaken says that no stack has taken addresses over, or that they have returned.
var errNotTaken = errors.New("no stack has the addresses")

// readTaken reads the file of a container, and locks it until the caller closes it. The
// lock keeps a stack from starting again while it ends, or twice.
func readTaken(id string) (a taken, f *os.File, err error) {
	path := takenFile(id)
	if err := checkTakenDir(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a, nil, err
	}
	f, err = os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil, errNotTaken
	}
	if err != nil {
		return a, nil, fmt.Errorf("reading the container's addresses: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return a, nil, fmt.Errorf("locking %s: %w", path, err)
	}
	mine, err := f.Stat()
	if err != nil {
		return a, nil, fmt.Errorf("reading the container's addresses: %w", err)
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(mine, now) {
		return a, nil, errNotTaken // removed before the lock
	}
	if err := json.NewDecoder(f).Decode(&a); err != nil {
		return a, nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, f, nil
}

// takenBy returns the names of the instances with this socket that have such a file.
func takenBy(socket string) (ids []string) {
	entries, _ := os.ReadDir(takenDir()) // fails if there are none
	for _, e := range entries {
		if a, f, err := readTaken(e.Name()); err == nil {
			f.Close()
			if a.Socket == socket {
				ids = append(ids, e.Name())
			}
		}
	}
	return ids
}

// end ends the run of a container, if it still exists, and restores the addresses.
func end(ctx context.Context, id string) error {
	a, f, err := readTaken(id)
	if err == nil {
		defer f.Close()
	}
	if serr := stop(ctx, id); serr != nil {
		return serr // the stack may still use its addresses
	}
	switch {
	case errors.Is(err, errNotTaken):
		return nil
	case err != nil:
		return err
	}
	return a.restoreAddrs(id)
}

// restoreAddrs restores the addresses of a container whose stack has ended, and removes the
// file.
func (a taken) restoreAddrs(id string) error {
	err := within(a.Netns, func() error {
		var errs []error
		for _, x := range a.Addresses {
			errs = append(errs, x.add())
		}
		return errors.Join(errs...)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the namespace has ended, and its addresses with it
	}
	path := takenFile(id)
	_ = os.Remove(path)
	_ = os.Remove(takenDir()) // fails while other containers have files in it
	return err
}

// dropTaken removes the files of containers whose network namespace has ended.
func dropTaken() {
	files, _ := filepath.Glob(takenFile("*"))
	for _, path := range files {
		var a taken
		text, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(text, &a) != nil || a.Netns == "" {
			continue // restoreAddrs reports it
		}
		if _, err := os.Lstat(a.Netns); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path)
			_ = os.Remove(filepath.Dir(path)) // fails while it has other files
		}
	}
}

func (a address) add() error {
	ip, n, err := net.ParseCIDR(a.CIDR)
	if err != nil {
		return fmt.Errorf("restoring an address: %w", err)
	}
	if err := delLocal(ip); err != nil {
		return err
	}
	l, err := netlink.LinkByName(a.Link)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil // the network has been removed before the container
	}
	if err != nil {
		return fmt.Errorf("restoring address %s of %s: %w", a.CIDR, a.Link, err)
	}
	// The address is in use no more, so there is no need to look for duplicates.
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: n.Mask}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(l, addr); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("restoring address %s of %s: %w", a.CIDR, a.Link, err)
	}
	return nil
}
