// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Interfaces lists the interfaces of a stack on which packets can be captured,
// with their properties, in the order of their numbers.
func Interfaces(ctx context.Context, conn *stackconn.Conn) ([]Interface, error) {
	links, err := stacknet.Links(ctx, conn)
	if err != nil {
		return nil, err
	}
	addrs, err := stacknet.Addresses(ctx, conn)
	if err != nil {
		return nil, err
	}
	var all []Interface
	for _, l := range stacknet.Sorted(links) {
		i := Interface{
			Index: l.Index, Name: l.Name, Loopback: l.Flags&unix.IFF_LOOPBACK != 0,
			LinkType: linkType(l.Type), Snaplen: MaxSnaplen, OS: "Linux " + conn.Hello().Release,
		}
		if i.LinkType == LinkTypeEthernet && !i.Loopback {
			i.MAC = l.MAC
		}
		if i.Speed, err = speed(ctx, conn, l.Name); err != nil {
			return nil, err
		}
		for _, a := range addrs {
			if a.IfIndex == l.Index {
				i.Addrs = append(i.Addrs, a.Prefix)
			}
		}
		all = append(all, i)
	}
	return all, nil
}

// linkType returns the link type of a SOCK_RAW packet socket on a device: with
// or without an Ethernet header.
func linkType(arphrd uint16) LinkType {
	if arphrd == unix.ARPHRD_ETHER || arphrd == unix.ARPHRD_LOOPBACK {
		return LinkTypeEthernet
	}
	return LinkTypeRaw
}

// speed returns the speed that the device reports, in bit/s. It returns 0 if
// there is none, as for most devices of the stack.
func speed(ctx context.Context, conn *stackconn.Conn, name string) (uint64, error) {
	b, err := conn.ReadFile(ctx, "/sys/class/net/"+name+"/speed")
	var no syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.As(err, &no) && no == syscall.EINVAL:
		return 0, nil
	case err != nil:
		return 0, err
	}
	mbit, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || mbit <= 0 { // -1: not known
		return 0, nil //nolint:nilerr // what is no number is no speed
	}
	return uint64(mbit) * 1e6, nil
}

// NoInterfaceError reports an interface that a stack does not have.
type NoInterfaceError struct {
	Name string
	Have []string
}

// Error names the interface, and those that exist.
func (e *NoInterfaceError) Error() string {
	return fmt.Sprintf("the stack has no interface %q, it has %s", e.Name, strings.Join(e.Have, ", "))
}

// Any is the name for all interfaces, including later ones.
const Any = "any"

// choose returns the interfaces with these names or numbers, or all.
func choose(have []Interface, names []string) ([]Interface, error) {
	var chosen []Interface
	for _, name := range names {
		at := slices.IndexFunc(have, func(i Interface) bool { return i.Name == name || strconv.Itoa(i.Index) == name })
		if at < 0 {
			e := &NoInterfaceError{Name: name}
			for _, i := range have {
				e.Have = append(e.Have, i.Name)
			}
			return nil, e
		}
		if !slices.ContainsFunc(chosen, func(i Interface) bool { return i.Index == have[at].Index }) {
			chosen = append(chosen, have[at])
		}
	}
	return chosen, nil
}
