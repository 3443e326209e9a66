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
	"time"

	"golang.org/x/sys/unix"
)

const (
	reservedFile = "/proc/sys/net/ipv4/ip_local_reserved_ports"
	localFile    = "/proc/sys/net/ipv4/ip_local_port_range"

	// lockName is the abstract unix socket that whoever changes the reserved
	// ports has bound meanwhile: such names belong to a network namespace, as
	// the ports do, and end with their process.
	lockName  = "@lklrun/reserved-ports"
	lockLimit = 10 * time.Second
	lockPause = 5 * time.Millisecond
)

// Wish is what a run needs of ports.
type Wish struct {
	First, Last uint16 // this range; 0: one that is free
	Size        int    // of one that is free
	Listen      []uint16
	Addrs       []netip.Addr // the shared addresses
}

// Reservation is what the run has got.
type Reservation struct {
	Ports
	Note string // what the user should know of it; empty: nothing
}

// Reserve finds ports that no socket of the host's and no other run has, and
// reserves them on the host. taken lists those that other runs have written
// down; journal writes down ours, for Release, before anything is changed.
func Reserve(ctx context.Context, w Wish, taken func() ([]string, error), journal func(ports string) error) (Reservation, error) {
	unlock, err := lockPorts(ctx)
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
	ours.removeAll(reserved) // what the administrator has reserved stays so
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
		return Reservation{}, fmt.Errorf("%w; a --port-range outside of %d-%d, which the host gives to its own programs, needs no reservation", err, low, high)
	}
	return Reservation{ports, fmt.Sprintf("%v: the host must leave the ports %s alone by itself", err, ports)}, nil
}

// Release takes ports that Reserve has written down back out of the host's
// reserved ones.
func Release(ctx context.Context, ports string) error {
	ours, err := parsePorts(ports)
	if err != nil {
		return err
	}
	unlock, err := lockPorts(ctx)
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

// lockPorts keeps all others in this network namespace from changing the
// reserved ports until unlock.
func lockPorts(ctx context.Context) (unlock func(), err error) {
	unlock, err = Lock(ctx, lockName)
	if err != nil {
		return nil, fmt.Errorf("locking the host's reserved ports: %w", err)
	}
	return unlock, nil
}

// Lock waits for the abstract unix socket called name, and has it until unlock:
// nobody else in this network namespace does what it stands for meanwhile.
func Lock(ctx context.Context, name string) (unlock func(), err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	limit := time.NewTimer(lockLimit)
	defer limit.Stop()
	again := time.NewTicker(lockPause)
	defer again.Stop()
	for {
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: name})
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			unix.Close(fd)
			return nil, err
		}
		select {
		case <-again.C:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-limit.C:
			err = fmt.Errorf("another process has the abstract socket %s for longer than %v", name, lockLimit)
		}
		unix.Close(fd)
		return nil, err
	}
}

// readReserved reads the host's reserved ports. The file gives all of them to
// the first read, and nothing to a second one.
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

// writeReserved replaces them. What is longer than a page goes in parts, which
// the kernel joins.
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

// localRange is what the host's kernel chooses from for its own programs.
func localRange() (low, high int) {
	low, high = 32768, 60999 // inet_init_net(), net/ipv4/af_inet.c
	if b, err := os.ReadFile(localFile); err == nil {
		_, _ = fmt.Sscan(string(b), &low, &high) // else as above
	}
	return low, high
}
