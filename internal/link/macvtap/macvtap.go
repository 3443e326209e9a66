// SPDX-License-Identifier: Apache-2.0

// Package macvtap is the interface type macvtap: a device with an Ethernet
// address of its own on a device of the host.
package macvtap

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/packet"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

func init() {
	link.Register(config.Type{
		Name: "macvtap", Rank: 30, Arg: "device", Form: "DEV", Hijack: "macvtap", NeedsRoot: true,
		Help:      "a macvtap on the host's device DEV, with its own Ethernet address; or an existing /dev/tapN",
		Keys:      []string{"mac", "dhcp", "dhcp6", "slaac", "offload", "vlan", "neigh"},
		Own:       []config.Key{{Name: "mode", Form: "bridge|private|vepa|passthru", Help: "macvtap mode (default bridge)", Check: checkMode}},
		ParseArg:  parse,
		Check:     check,
		Exclusive: func(i *config.Interface) bool { return isPath(i.Device) },
		Conflict:  conflict,
	}, driver{})
}

// The modes that a rule here is about. The default is bridge.
const (
	bridge   = "bridge"
	passthru = "passthru"
)

func checkMode(mode string) error {
	switch mode {
	case bridge, "private", "vepa", passthru:
		return nil
	}
	return fmt.Errorf("%q; expected bridge, private, vepa or passthru", mode)
}

func parse(i *config.Interface, arg string) error {
	if err := config.CheckDevice(arg); err != nil && !isPath(arg) {
		return fmt.Errorf("macvtap: %w; expected macvtap:DEV, or macvtap:/dev/tapN for an existing macvtap", err)
	}
	i.Device = arg
	return nil
}

// isPath reports whether arg is the path of a macvtap's character device.
func isPath(arg string) bool {
	return strings.HasPrefix(arg, "/") && !strings.HasSuffix(arg, "/") &&
		!strings.ContainsFunc(arg, func(r rune) bool { return r <= ' ' || r > '~' })
}

func check(i *config.Interface) *config.KeyError {
	if i.Own["mode"] != "" && isPath(i.Device) {
		return config.KeyErrorf("mode", "%s exists and keeps its mode; remove mode=", i.Device)
	}
	return nil
}

// conflict describes the conflict between two interfaces: macvtaps on the same
// device, one of which has mode passthru and therefore needs the device
// exclusively.
func conflict(all []config.Interface, first, second int) string {
	device := all[second].Device
	if all[first].Device != device || isPath(device) {
		return ""
	}
	for _, n := range []int{first, second} {
		if all[n].Own["mode"] == passthru {
			return fmt.Sprintf("%s has two macvtaps, and mode passthru (eth%d) requires the device for itself; choose mode=bridge for all", device, n)
		}
	}
	return ""
}

// Facts describe the macvtap, or the device to create one on.
type Facts = netdev.MacvtapState

// Part is the plan of a macvtap.
type Part struct {
	Create bool   `json:"create,omitempty"` // it does not exist yet
	Mode   string `json:"mode,omitempty"`   // empty: bridge
}

type driver struct{}

func (driver) Look(ctx context.Context, q *link.Query) (Facts, error) {
	st, err := netdev.CheckMacvtap(q.Interface.Device)
	return st, q.MissingRight(err)
}

// Plan fills in the properties that the host's device determines. The MTU of a
// new macvtap is at most that of the underlying device. An existing macvtap
// keeps its properties.
func (driver) Plan(r *link.Request, f Facts) (Part, error) {
	l, p := r.Link, Part{Create: !f.Exists, Mode: r.Interface.Own["mode"]}
	most := min(f.MTU, config.MaxMTU)
	switch {
	case l.MTU > most:
		return p, fmt.Errorf("mtu: %d is greater than the MTU of %s, %d", l.MTU, f.Name, most)
	case l.MTU == 0:
		l.MTU = most
	}
	if !f.Up {
		r.Note("%s is down on the host, so %s carries no traffic; run `ip link set %[1]s up`", f.Name, l.Name)
	}
	if f.Wireless && p.Create && p.Mode != passthru {
		return p, exit.Usagef("%s is wireless, and access points accept frames only from its own Ethernet address; use --if raw:%[1]s", f.Name)
	}
	if p.Create {
		if l.MAC.IsZero() && len(l.Addrs) == 0 { // one device may have several macvtaps
			l.MAC = link.StableMAC(r.Machine+" "+l.Name, &config.Interface{Type: l.Type, Device: l.Device})
		}
		return p, nil
	}
	if p.Mode != "" {
		return p, fmt.Errorf("mode: macvtap %s exists and keeps its mode; remove mode=", f.Name)
	}
	if !l.MAC.IsZero() && !bytes.Equal(l.MAC[:], f.MAC) {
		return p, fmt.Errorf("mac: macvtap %s exists and keeps its address %v; remove mac=", f.Name, net.HardwareAddr(f.MAC))
	}
	copy(l.MAC[:], f.MAC)
	return p, nil
}

func (driver) Describe(l *link.Link, p Part) link.Description {
	if !p.Create {
		return link.Description{
			Summary: []string{"macvtap " + l.Device},
			Step:    fmt.Sprintf("attach to macvtap %s as %s", l.Device, l.Name), Undo: "detach",
		}
	}
	return link.Description{
		Summary: []string{"macvtap on " + l.Device + " (to be created)"},
		Step:    fmt.Sprintf("create a macvtap on %s, mode %s, mtu %d, up, as %s", l.Device, cmp.Or(p.Mode, bridge), l.MTU, l.Name), Undo: "delete it",
	}
}

func (driver) Open(ctx context.Context, l *link.Link, p Part, env link.Env) (link.End, error) {
	st, err := netdev.CheckMacvtap(l.Device)
	if err != nil {
		return link.End{}, err
	}
	m, err := netdev.OpenMacvtap(st, netdev.NewMacvtap{MAC: l.MAC[:], MTU: l.MTU, Mode: p.Mode}, env.Journal)
	var closed *netdev.ClosedError
	if errors.As(err, &closed) {
		return instead(l, p, env, closed)
	}
	if err != nil {
		return link.End{}, err
	}
	return link.End{
		File: m.File, Kind: ctlproto.CTL_LINK_TAP, Flags: link.VnetFlags(true),
		Ifindex: m.Ifindex, Gone: fmt.Sprintf("macvtap %s was deleted on the host", m.Name),
	}, nil
}

// instead is the fallback for a user who may create a macvtap but not open its
// device file. Udev sets the permissions of that file after the creation. A
// packet socket on the underlying device carries the same frames with the same
// Ethernet address.
func instead(l *link.Link, p Part, env link.Env, closed error) (link.End, error) {
	if p.Mode != "" && p.Mode != bridge || netdev.CheckPacketRight() != nil {
		return link.End{}, exit.Usagef("--if %s:%s: %w", l.Type, l.Device, closed)
	}
	env.Note(fmt.Sprintf("%s: %v; falling back to a packet socket on %s, as with raw", l.Name, closed, l.Device))
	return packet.OpenOwn(l)
}

// Check returns nothing, because support for macvtaps depends on the device.
func (driver) Check(context.Context) []link.Finding { return nil }
