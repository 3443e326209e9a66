// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"

	"golang.org/x/net/bpf"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/run/plan"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// openPacket opens a packet socket on a device of the host, and guards the
// shared addresses.
func (r *run) openPacket(ctx context.Context, l *plan.Link) (link, error) {
	if len(l.Shared) > 0 {
		if err := r.sharing.Reserve(ctx, l.Shared...); err != nil {
			return link{}, err
		}
	}
	filter, err := r.packetFilter(l)
	if err != nil {
		return link{}, fmt.Errorf("%s: the filter of its packet socket: %w", l.Device, err)
	}
	p, err := hostnet.OpenPacket(hostnet.PacketOptions{
		Device: l.Device, RawIP: l.RawIP, Filter: filter,
		Promiscuous: !l.RawIP && len(l.Shared) == 0,
	})
	if err != nil {
		return link{}, err
	}
	k := link{
		file: p.File, kind: ctlproto.CTL_LINK_PACKET, flags: headed(p.VnetHdr),
		ifindex: p.Ifindex, gone: saying("device %s is gone from the host", l.Device),
	}
	if l.RawIP {
		k.kind = ctlproto.CTL_LINK_COOKED
	}
	if len(l.Shared) > 0 {
		if k.close, err = r.sharing.Guard(ctx, l); err != nil {
			p.File.Close()
			return link{}, err
		}
	}
	return k, nil
}

// packetFilter returns the filter of the link's packet socket. If the link
// shares addresses with the host, the filter accepts the stack's part of their
// packets. If it has its own Ethernet address, the filter accepts packets to
// that address.
func (r *run) packetFilter(l *plan.Link) ([]bpf.RawInstruction, error) {
	switch {
	case len(l.Shared) > 0:
		return r.sharing.Filter(l)
	case l.RawIP:
		return nil, nil
	}
	return hostnet.OwnFilter(l.MAC)
}
