// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// goneWatch follows the host's end of a link. When the host's end disappears,
// goneWatch sets the link down in the stack. The program then gets ENETUNREACH
// immediately, instead of waiting for an answer. Until then, goneWatch copies
// the carrier state of the host's device to the link. For most devices, the
// stack would notice a change late or never.
type goneWatch struct {
	conn    *stackconn.Conn
	log     *slog.Logger
	tell    func(string)
	changed func() // called when a path has changed

	link   *liveLink
	cancel context.CancelFunc
	done   chan struct{}
}

func watches(v *links, l *liveLink) service {
	if l.host.Watch == nil && l.host.Ifindex == 0 {
		return nil
	}
	return &goneWatch{conn: v.conn, log: v.log, tell: v.tell, changed: v.paths.Changed, link: l}
}

// Start starts the watch.
func (g *goneWatch) Start(ctx context.Context) error {
	k := &g.link.host
	if k.Watch == nil {
		var err error
		if k.Watch, err = netdev.WatchDevice(k.Ifindex); err != nil {
			return err
		}
	}
	if k.Gone == "" {
		k.Gone = fmt.Sprintf("%s %s was deleted on the host", g.link.Type, g.link.Host())
	}
	ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.done = make(chan struct{})
	go g.wait(ctx)
	return nil
}

func (g *goneWatch) wait(ctx context.Context) {
	defer close(g.done)
	for gone := false; !gone; {
		select {
		case <-ctx.Done():
			return
		case carries := <-g.link.host.Watch.Carries():
			g.carries(ctx, carries)
		case <-g.link.host.Watch.Gone():
			gone = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := stacknet.SetDown(ctx, g.conn, g.link.Name)
	if err != nil {
		g.log.Debug("setting a deleted link down", "error", err)
	}
	// If the stack has ended, its end of the link has ended with it.
	// Another part of lklrun reports that.
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		g.tell(fmt.Sprintf("%s has failed: %s", g.link.Name, g.link.host.Gone))
	}
}

// carries tells the stack whether its link has a carrier.
func (g *goneWatch) carries(ctx context.Context, on bool) {
	word := "off"
	if on {
		word = "on"
	}
	g.log.Debug(fmt.Sprintf("%s: the host's carrier is %s", g.link.Name, word))
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	// Move the connections to other links first.
	if g.link.cut.Store(!on); !on {
		g.changed()
	}
	if err := stacknet.SetCarrier(ctx, g.conn, g.link.Name, on); err != nil {
		g.log.Debug("setting a link's carrier", "error", err)
	}
	g.changed()
}

// Stop ends the watch.
func (g *goneWatch) Stop() {
	g.cancel()
	<-g.done
}
