// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/link"
	"github.com/lklrun/lklrun/internal/link/udp/keys"
	"github.com/lklrun/lklrun/internal/link/udp/tunnel"
	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

func (driver) Open(ctx context.Context, l *link.Link, p Part, env link.Env) (link.End, error) {
	file, err := keys.Read(p.Key)
	if err != nil { // it has changed since the plan was made
		return link.End{}, &exit.UsageError{Err: err}
	}
	c := tunnel.Config{
		Keys: file, MTU: l.MTU, Log: env.Log,
		Remote: p.Remote, Via: p.Via, Port: p.Listen, Gateway: p.Gateway, Own: p.Own,
	}
	end := link.End{Kind: ctlproto.CTL_LINK_FRAME, Flags: tunnel.LinkFlags}
	if p.Listen != 0 {
		t, f, err := tunnel.Listen(c)
		if errors.Is(err, unix.EADDRINUSE) {
			err = exit.Usagef("--if udp:%d: the port is in use; choose another port", p.Listen)
		}
		if err != nil {
			return link.End{}, err
		}
		end.File, end.Close, end.TunnelPeers = f, t.Close, t.Peers
		return end, nil
	}
	w, report := netdev.ReportedWatch()
	c.Report = func(carries bool) {
		report(carries)
		if carries {
			env.Note(fmt.Sprintf("%s: the gateway %s answers again", l.Name, p.Remote))
		} else {
			env.Note(fmt.Sprintf("%s: the gateway %s does not answer", l.Name, p.Remote))
		}
	}
	t, f, err := tunnel.Connect(ctx, c)
	var silent *tunnel.NoAnswerError
	if errors.As(err, &silent) {
		err = exit.Usagef("--if udp:%s: %w", l.Device, err)
	}
	if err != nil {
		w.Close()
		return link.End{}, err
	}
	if t.Blind {
		env.Note(fmt.Sprintf("%s: the gateway answers no echo requests in the tunnel, so lklrun does not notice if the path is cut; set its address in the tunnel with gw=", l.Name))
	}
	end.File, end.Close, end.TunnelPeers, end.Watch = f, t.Close, t.Peers, w
	return end, nil
}
