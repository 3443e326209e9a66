// SPDX-License-Identifier: Apache-2.0

// Package gateway is the end of tunnels in UDP on the host's own network: a tun
// device, masqueraded by the host. The other end is a stack's interface of type
// udp.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/link/udp/tunnel"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/pkg/config"
)

// Options describe a gateway.
type Options struct {
	Port   uint16
	Key    string // path of its key file
	Device string // name of the tun device, which must not exist
	MTU    int
	NAT    bool // masquerade packets of the clients behind the host's addresses
	Log    *slog.Logger
	Tell   func(string) // prints a line for the user
}

// Run serves the tunnels until ctx ends, and undoes all changes to the host.
func Run(ctx context.Context, o Options) (err error) {
	file, err := o.look(ctx)
	if err != nil {
		return err
	}
	dir, err := instance.Create(o.Device)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, undo.Finish(dir, func() error { return undo.Replay(context.WithoutCancel(ctx), dir) }))
	}()
	if dir.Leftover {
		if err := undo.TakeOver(ctx, dir); err != nil {
			return err
		}
		if err := dir.Reset(); err != nil {
			return err
		}
	}
	if err := dir.WriteState(&instance.State{Name: dir.Name, PID: os.Getpid(), Gateway: true}); err != nil {
		return err
	}
	t, err := tunnel.ListenTun(tunnel.Config{Keys: file, MTU: o.MTU, Port: o.Port, Log: o.Log}, o.Device)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return exit.Usagef("--listen %d: the port is in use; choose another port", o.Port)
	case err != nil:
		return err
	}
	defer t.Close()
	if err := o.setUp(ctx, dir, file); err != nil {
		return err
	}
	o.Tell(fmt.Sprintf("gateway on UDP port %d, device %s, %s; clients: %d keys", o.Port, o.Device, join(file.Addrs), len(file.Peers)))
	select {
	case <-ctx.Done():
		return nil
	case <-t.Done():
		return fmt.Errorf("device %s was deleted on the host", o.Device)
	}
}

// look checks everything that the user can fix before anything changes.
func (o *Options) look(ctx context.Context) (*keys.File, error) {
	if !tunnel.Available {
		return nil, &exit.UsageError{Err: tunnel.ErrLeftOut}
	}
	file, err := keys.Read(o.Key)
	switch {
	case err != nil:
		return nil, exit.Usagef("--key: %w", err)
	case len(file.Peers) == 0:
		return nil, exit.Usagef("--key: %s knows no client; add one with `lklrun gateway --new-key DIR --client NAME`", o.Key)
	case file.Open:
		o.Tell(fmt.Sprintf("other users can read the keys in %s; run `chmod 600 %s`", o.Key, o.Key))
	}
	if !netdev.Capable(unix.CAP_NET_ADMIN) {
		return nil, exit.Usagef("creating a tun device requires CAP_NET_ADMIN; run lklrun as root, or let a stack be the gateway: lklrun --if udp:%d,key=%s -- COMMAND", o.Port, o.Key)
	}
	if o.NAT {
		if err := netdev.CheckNAT(ctx); err != nil {
			return nil, exit.Usagef("%w, or add --no-nat", err)
		}
	}
	if _, err := net.InterfaceByName(o.Device); err == nil {
		return nil, exit.Usagef("--tun %s: the device already exists; choose another name", o.Device)
	}
	routed, err := netdev.Routed()
	if err != nil {
		return nil, err
	}
	for _, a := range file.Addrs {
		if n := slices.IndexFunc(routed, func(r netip.Prefix) bool { return r.Bits() >= a.Bits() && a.Overlaps(r) }); n >= 0 {
			return nil, exit.Usagef("the host already has a route to %s, which overlaps the network %s in %s; create keys with another --net", routed[n], a.Masked(), o.Key)
		}
	}
	return file, nil
}

// setUp assigns the addresses to the device, and masquerades.
func (o *Options) setUp(ctx context.Context, dir *instance.Dir, file *keys.File) error {
	journal, err := undo.Open(dir)
	if err != nil {
		return err
	}
	defer journal.Close()
	var plain, masked []netip.Prefix
	for _, a := range file.Addrs {
		switch six := a.Addr().Is6(); {
		case six && o.MTU < config.MinMTU6:
		case o.NAT && (!six || netdev.RoutesIPv6()):
			masked = append(masked, a)
		default:
			plain = append(plain, a)
		}
	}
	d, err := netdev.UseTun(o.Device, plain)
	if err != nil || len(masked) == 0 {
		return err
	}
	earlier := func() ([]netdev.Undo, error) { return undo.Others(dir, netdev.OpNAT, o.Log) }
	return d.NAT(ctx, masked, earlier, journal.Add)
}

func join(all []netip.Prefix) string {
	s := ""
	for n, p := range all {
		if n > 0 {
			s += ", "
		}
		s += p.String()
	}
	return s
}
