// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

const (
	reservedFile = "/proc/sys/net/ipv4/ip_local_reserved_ports"
	localFile    = "/proc/sys/net/ipv4/ip_local_port_range"
)

// Wish describes the ports that a run needs.
type Wish struct {
	First, Last uint16 // the range; 0: choose a free one
	Size        int    // size of the free range
	Listen      []uint16
	Addrs       []netip.Addr // the shared addresses
}

// Reservation is the result of Reserve.
type Reservation struct {
	Ports
	Note string // message for the user; empty: none
}

// Reserve finds ports that no socket of the host and no other run uses, and
// reserves them on the host. The function taken lists the ports that other runs
// have recorded. The function journal records our ports for Release before
// anything is changed.
func Reserve(ctx context.Context, w Wish, taken func() ([]string, error), journal func(ports string) error) (Reservation, error) {
	unlock, err := Lock(ctx)
	if err != nil {
		return Reservation{}, err
	}
	defer unlock()
	reserved, err := readReserved()
	if err != nil {
		return Reservation{}, err
	}
	others := &portSet{}
	lists, err := taken()
	if err != nil {
		return Reservation{}, err
	}
	for _, l := range lists {
		s, err := parsePorts(l)
		if err != nil {
			return Reservation{}, err
		}
		others.addAll(s)
	}
	ports, err := w.choose(ctx, reserved, others)
	if err != nil {
		return Reservation{}, err
	}
	ours := ports.set()
	ours.removeAll(reserved) // keep the administrator's own reservations
	if *ours == (portSet{}) {
		return Reservation{Ports: ports}, nil
	}
	if err := journal(ours.String()); err != nil {
		return Reservation{}, err
	}
	reserved.addAll(ours)
	err = writeReserved(reserved)
	switch {
	case err == nil:
		return Reservation{Ports: ports}, nil
	case !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission):
		return Reservation{}, err
	}
	low, high := localRange()
	if int(ports.First) <= high && int(ports.Last) >= low {
		return Reservation{}, fmt.Errorf("%w; choose a --port-range outside the host's own range %d-%d, which needs no reservation", err, low, high)
	}
	return Reservation{ports, fmt.Sprintf("%v; make sure that no program of the host uses the ports %s", err, ports)}, nil
}

// Release removes ports that Reserve has recorded from the host's reserved
// ports.
func Release(ctx context.Context, ports string) error {
	ours, err := parsePorts(ports)
	if err != nil {
		return err
	}
	unlock, err := Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	reserved, err := readReserved()
	if err != nil {
		return err
	}
	before := *reserved
	reserved.removeAll(ours)
	if *reserved == before {
		return nil
	}
	return writeReserved(reserved)
}

// readReserved reads the host's reserved ports. The first read of the file
// returns all ports, and the next read returns nothing.
func readReserved() (*portSet, error) {
	f, err := os.Open(reservedFile)
	if err != nil {
		return nil, fmt.Errorf("reading the host's reserved ports: %w", err)
	}
	defer f.Close()
	b := make([]byte, 512<<10)
	n, err := f.Read(b)
	if err != nil {
		return nil, fmt.Errorf("reading the host's reserved ports: %w", err)
	}
	s, err := parsePorts(string(bytes.TrimSpace(b[:n])))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", reservedFile, err)
	}
	return s, nil
}

// writeReserved replaces the host's reserved ports. A list longer than a page
// is written in parts, which the kernel joins.
func writeReserved(s *portSet) error {
	f, err := os.OpenFile(reservedFile, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reserving ports on the host: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(s.String() + "\n"); err != nil {
		return fmt.Errorf("reserving ports on the host: %w", err)
	}
	return nil
}

// localRange returns the range from which the host's kernel assigns ports to
// its own programs.
func localRange() (low, high int) {
	low, high = 32768, 60999 // inet_init_net(), net/ipv4/af_inet.c
	if b, err := os.ReadFile(localFile); err == nil {
		_, _ = fmt.Sscan(string(b), &low, &high) // on an error the defaults stay
	}
	return low, high
}
