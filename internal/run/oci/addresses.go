// SPDX-License-Identifier: Apache-2.0

package oci

import (
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
// A file keeps the addresses. It is not in the run directory, which does not exist any
// more if lklhost was killed.

// An address is one of an interface, such as 10.88.0.2/16 of eth0.
type address struct {
	Link string `json:"link"`
	CIDR string `json:"cidr"`
}

// taken are the addresses that a stack has taken over.
type taken struct {
	Netns     string    `json:"netns"`
	Addresses []address `json:"addresses"`
}

// takenFile is the file of a container by the name of its instance.
func takenFile(id string) string { return filepath.Join(instance.Root()+"-oci", id) }

// keep writes the file.
func (a taken) keep(id string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := takenFile(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keeping the container's addresses: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("keeping the container's addresses: %w", err)
	}
	return nil
}

// giveBack restores the addresses of a container whose stack has ended, and removes the
// file. It does nothing if there is no file.
func giveBack(id string) error {
	path := takenFile(id)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restoring the container's addresses: %w", err)
	}
	var a taken
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("restoring the container's addresses: %s: %w", path, err)
	}
	err = within(a.Netns, func() error {
		var errs []error
		for _, x := range a.Addresses {
			errs = append(errs, x.add())
		}
		return errors.Join(errs...)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the namespace has ended, and its addresses with it
	}
	_ = os.Remove(path)
	_ = os.Remove(filepath.Dir(path)) // fails while other containers have files in it
	return err
}

func (a address) add() error {
	ip, n, err := net.ParseCIDR(a.CIDR)
	if err != nil {
		return fmt.Errorf("restoring an address: %w", err)
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
