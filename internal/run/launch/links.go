// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/link/user/gateway"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/run/undo"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
	"github.com/lklrun/lklrun/pkg/config"
)

// link is the host's end of an interface: the descriptor for lklhost, and the
// resources that are released with the interface.
type link struct {
	file    *os.File // closed once lklhost has it
	kind    uint32   // ctlproto.CTL_LINK_*
	flags   uint32   // ctlproto.CTL_LINKF_*
	close   func()   // stops the part that runs in this process; nil: none
	ifindex int      // of the host's device; 0: none

	counts func() map[string]uint64 // counters of a gateway; nil: not a gateway

	watch *hostnet.Watch // reports the end; nil: watch the device, if there is one
	gone  func() string  // message at the end; nil: the device is gone
}

// saying returns a fixed message, for a link that can end for only one reason.
func saying(format string, args ...any) func() string {
	return func() string { return fmt.Sprintf(format, args...) }
}

// offload replaces the type's default offload setting by that of l.
func (k *link) offload(l *plan.Link) error {
	mask, isMask := strings.CutPrefix(l.Offload, "0x")
	switch {
	case l.Offload == "":
		return nil
	case noOffload(l):
		k.flags &^= ctlproto.CTL_LINKF_OFFLOAD | ctlproto.CTL_LINKF_BIG
		return nil
	case k.flags&ctlproto.CTL_LINKF_VNET_HDR == 0:
		return &RefusedError{fmt.Errorf("--if %s:%s: offload: %s: its frames come without the head that tells of it (IFF_VNET_HDR); leave offload out",
			l.Type, l.Host(), l.Offload)}
	}
	k.flags |= ctlproto.CTL_LINKF_OFFLOAD
	if !isMask {
		return nil
	}
	n, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	// The mask has 15 bits: higher features do not apply to our devices.
	// The bit for merged buffers does not apply either, so here it marks
	// that a mask is present.
	k.flags |= (uint32(n)&0x7fff | mergedBuffers) << ctlproto.CTL_LINKF_FEATURES_SHIFT
	k.flags &^= ctlproto.CTL_LINKF_BIG // virtio has no feature bit for it
	return nil
}

// noOffload reports whether the link uses no offload at all.
func noOffload(l *plan.Link) bool {
	mask, isMask := strings.CutPrefix(l.Offload, "0x")
	return l.Offload == "off" || isMask && strings.Trim(mask, "0") == ""
}

// mergedBuffers is the bit of VIRTIO_NET_F_MRG_RXBUF
// (include/uapi/linux/virtio_net.h).
const mergedBuffers = 1 << 15

// openLink creates or opens the host's end of l. It passes the undo of each
// change to journal before it makes the change. After an error, only the
// changes in the journal remain.
func (r *run) openLink(ctx context.Context, l *plan.Link, journal func(hostnet.Undo) error) (link, error) {
	switch l.Type {
	case config.TypeUser:
		return r.openGateway(ctx, l)
	case config.TypeTap:
		return r.openTap(ctx, l, journal)
	case config.TypeMacvtap:
		return r.openMacvtap(ctx, l, journal)
	case config.TypeRaw, config.TypeRawIP:
		return r.openPacket(ctx, l)
	case config.TypeFD:
		return openFD(l)
	}
	return link{}, fmt.Errorf("unknown type of interface %q", l.Type)
}

func (r *run) openGateway(ctx context.Context, l *plan.Link) (link, error) {
	g, file, err := gateway.Start(ctx, *l.Gateway, r.log, func(words string) { r.opts.Tell(l.Name + ": " + words) })
	var taken *gateway.PublishError
	if errors.As(err, &taken) { // in use since the plan was made
		return link{}, &RefusedError{err}
	}
	if err != nil {
		return link{}, err
	}
	return link{file: file, kind: ctlproto.CTL_LINK_FRAME, close: func() { g.Close() }, counts: g.Counts}, nil
}

func (r *run) openTap(ctx context.Context, l *plan.Link, journal func(hostnet.Undo) error) (link, error) {
	o := hostnet.TapOptions{Queue: l.Queue, Plain: noOffload(l)}
	if l.Create {
		o.MTU = l.MTU
	}
	tap, err := hostnet.OpenTap(l.Device, o, journal)
	if err != nil {
		return link{}, err
	}
	if l.Bridge != "" {
		err = tap.Bridge(ctx, l.Bridge, journal)
	}
	if l.NAT && err == nil {
		err = tap.NAT(ctx, l.HostAddrs, func() ([]hostnet.Undo, error) { return undo.Others(r.dir, hostnet.OpNAT, r.log) }, journal)
	}
	member := false
	if err == nil {
		member, err = tap.Member(ctx)
	}
	if err != nil {
		tap.File.Close()
		return link{}, err
	}
	// The host would have to segment big packets itself to forward them to
	// another device.
	flags := headed(tap.VnetHdr)
	if !member && !l.NAT && tap.VnetHdr {
		flags |= ctlproto.CTL_LINKF_BIG
	}
	return link{file: tap.File, kind: ctlproto.CTL_LINK_TAP, flags: flags, ifindex: tap.Ifindex}, nil
}

func (r *run) openMacvtap(ctx context.Context, l *plan.Link, journal func(hostnet.Undo) error) (link, error) {
	st, err := hostnet.CheckMacvtap(ctx, l.Device)
	if err != nil {
		return link{}, err
	}
	m, err := hostnet.OpenMacvtap(ctx, st, hostnet.NewMacvtap{MAC: l.MAC[:], MTU: l.MTU, Mode: l.Mode}, journal)
	var closed *hostnet.ClosedError
	if errors.As(err, &closed) {
		return r.insteadOfMacvtap(ctx, l, closed)
	}
	if err != nil {
		return link{}, err
	}
	return link{
		file: m.File, kind: ctlproto.CTL_LINK_TAP, flags: ctlproto.CTL_LINKF_VNET_HDR | ctlproto.CTL_LINKF_OFFLOAD,
		ifindex: m.Ifindex, gone: saying("macvtap %s is gone from the host", m.Name),
	}, nil
}

// insteadOfMacvtap is the fallback for a user who may create a macvtap but not
// open it. A packet socket on the underlying device carries the same frames
// with the same Ethernet address.
func (r *run) insteadOfMacvtap(ctx context.Context, l *plan.Link, closed error) (link, error) {
	if l.Mode != "" && l.Mode != config.ModeBridge || hostnet.CheckPacketRight() != nil {
		return link{}, &RefusedError{fmt.Errorf("--if %s:%s: %w", l.Type, l.Device, closed)}
	}
	if !r.opts.Quiet {
		r.opts.Tell(fmt.Sprintf("%s: %v; so its frames go by a packet socket on %s, as with raw", l.Name, closed, l.Device))
	}
	raw := *l
	raw.Type = config.TypeRaw
	return r.openPacket(ctx, &raw)
}

func openFD(l *plan.Link) (link, error) {
	f, err := hostnet.OpenFD(l.FD)
	if err != nil {
		return link{}, err
	}
	return onFrames(l, f)
}

// openPassed is like openFD, for a descriptor that was passed instead of
// inherited.
func openPassed(l *plan.Link, file *os.File) (link, error) {
	f, err := hostnet.OpenPassed(file, l.FD)
	if err != nil {
		return link{}, err
	}
	return onFrames(l, f)
}

func onFrames(l *plan.Link, f *hostnet.Frames) (link, error) {
	k := link{file: f.File, kind: fdKinds[f.Kind], flags: headed(f.VnetHdr)}
	switch {
	case f.Kind == hostnet.FDSocket:
		var err error
		if k.watch, err = hostnet.WatchSocket(f.File); err != nil {
			f.File.Close()
			return link{}, err
		}
		k.gone = saying("the other end of descriptor %d is closed", l.FD)
	case f.Ifindex != 0:
		k.ifindex, k.gone = f.Ifindex, saying("%s %s is gone from the host", fdNouns[f.Kind], f.Name)
	}
	return k, nil
}

var fdNouns = map[hostnet.FDKind]string{
	hostnet.FDTap: "tap", hostnet.FDTun: "tun", hostnet.FDPacket: "device", hostnet.FDCooked: "device",
}

var fdKinds = map[hostnet.FDKind]uint32{
	hostnet.FDSocket: ctlproto.CTL_LINK_FRAME,
	hostnet.FDTap:    ctlproto.CTL_LINK_TAP,
	hostnet.FDTun:    ctlproto.CTL_LINK_TUN,
	hostnet.FDPacket: ctlproto.CTL_LINK_PACKET,
	hostnet.FDCooked: ctlproto.CTL_LINK_COOKED,
}

// headed returns the flags of a link whose frames have, or do not have, a
// virtio_net_hdr.
func headed(vnetHdr bool) uint32 {
	if vnetHdr {
		return ctlproto.CTL_LINKF_VNET_HDR | ctlproto.CTL_LINKF_OFFLOAD
	}
	return 0
}

// liveLink is an interface of the run, from the opening of its host's end until
// all of it is released.
type liveLink struct {
	cut        atomic.Bool // the host's end is known to have no carrier
	*plan.Link             // Name is the name in the stack, once it has one
	dev        int         // lklhost's number for it
	host       link        // the host's end
	undos      []hostnet.Undo
	services   []service // running services of this link
}

// open opens the host's end of l and records it. The stack does not have it
// yet. passed is a descriptor that was passed to lklrun instead of inherited;
// nil: there is none.
func (r *run) open(ctx context.Context, l *plan.Link, passed *os.File) (*liveLink, error) {
	k := &liveLink{Link: l, dev: -1}
	var err error
	if passed != nil {
		k.host, err = openPassed(l, passed)
	} else {
		k.host, err = r.openLink(ctx, l, func(u hostnet.Undo) error {
			k.undos = append(k.undos, u)
			return r.journal.Add(u)
		})
	}
	if err == nil {
		err = k.host.offload(l)
	}
	if err != nil {
		return nil, errors.Join(err, r.undo(ctx, k))
	}
	return k, nil
}

// attach passes the host's end to lklhost. Before boot, the stack returns no
// index.
func (r *run) attach(ctx context.Context, k *liveLink) (ifindex int, err error) {
	add := ctlproto.LinkAdd{Kind: k.host.kind, Flags: k.host.flags, MAC: k.MAC, MTU: uint16(k.MTU)}
	k.dev, ifindex, err = r.conn.AddLink(ctx, add, k.host.file)
	// Close our copy, so that only lklhost holds the device and no frame
	// wakes this process.
	k.host.file.Close()
	k.host.file = nil
	if err != nil {
		k.dev = -1
		if k.RawIP && errors.Is(err, unix.EOPNOTSUPP) { // the library's ABI was not known until now
			return 0, &RefusedError{fmt.Errorf("--if %s:%s: %w", k.Type, k.Host(), r.plan.Stack.NoRawIP())}
		}
		return 0, fmt.Errorf("%s: %w", k.Name, err)
	}
	return ifindex, nil
}

// release releases this process's part of the host's end.
func (k *liveLink) release() {
	if k.host.file != nil {
		k.host.file.Close()
		k.host.file = nil
	}
	if k.host.watch != nil {
		k.host.watch.Close()
		k.host.watch = nil
	}
	if k.host.close != nil {
		k.host.close()
		k.host.close = nil
	}
}

// undo reverts the host changes for k before the end of the run. The journal
// keeps failed undos for the end of the run.
func (r *run) undo(ctx context.Context, k *liveLink) error {
	k.release()
	err := r.journal.Revert(ctx, k.undos)
	k.undos = nil
	return err
}
