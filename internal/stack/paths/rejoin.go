// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/mptcpevent"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// rejoin makes connections try their endpoints again, until the Keeper ends.
func (k *Keeper) rejoin() {
	f, err := k.conn.Open(k.ctx, stacknet.JoinFile, unix.O_WRONLY)
	if err != nil {
		k.log.Debug("this stack does not retry failed subflows", "error", err)
		return
	}
	defer f.Close()
	k.ended.Go(func() { k.listenForever("listening to MPTCP's events", k.hearJoins) })
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		if at := k.joins.next(); at.IsZero() {
			due.Stop()
		} else {
			due.Reset(max(time.Until(at), rest))
		}
		select {
		case <-k.joins.wake:
			continue
		case <-due.C:
		case <-k.ctx.Done():
			return
		}
		if err := k.join(f); k.ctx.Err() != nil || errors.Is(err, stackconn.ErrClosed) {
			return
		} else if err != nil {
			k.log.Debug("retrying the endpoints of connections", "error", err)
		}
	}
}

// hearJoins receives events about subflows.
func (k *Keeper) hearJoins() error {
	w, err := k.openJoins()
	if err != nil {
		return err
	}
	defer w.Close()
	return k.runJoins(w)
}

func (k *Keeper) openJoins() (*mptcpevent.Watcher, error) {
	w, err := mptcpevent.Open(k.ctx, k.conn)
	if err != nil {
		return nil, err
	}
	if err := w.Filter(mptcpevent.SubEstablished, mptcpevent.SubClosed); err != nil {
		w.Close()
		return nil, err
	}
	k.joins.lookSoon(k.now()) // subflows may have changed in the meantime
	return w, nil
}

func (k *Keeper) runJoins(w *mptcpevent.Watcher) error {
	return w.Run(func(e mptcpevent.Event) { k.joins.handleEvent(e, k.now()) })
}

// join makes connections retry the joins that are due.
func (k *Keeper) join(f *stackconn.File) error {
	endpoints, err := k.joinable()
	if err != nil {
		k.joins.postpone(k.now())
		return err
	}
	if k.joins.toLook(k.now()) && len(endpoints) > 0 {
		if err := k.missing(endpoints); err != nil {
			return err
		}
	}
	count := map[netip.Addr]int{}
	for _, key := range k.joins.due(k.now()) {
		e, ok := endpoints[key.addr]
		if !ok { // the kernel itself tries an endpoint that comes back
			k.joins.done(key)
			continue
		}
		order := fmt.Sprintf("%v %d", key.token, e.ID)
		if e.Flags&stacknet.EndpointFullmesh != 0 {
			order += " fullmesh"
		}
		_, err := f.Write(k.ctx, []byte(order))
		switch {
		case err == nil:
			count[key.addr]++
			k.joins.recordAttempt(key, k.now())
		case errors.Is(err, syscall.EAGAIN):
			k.joins.recordAttempt(key, k.now())
		default:
			var said *fs.PathError
			if k.joins.done(key); !errors.As(err, &said) {
				return err
			}
		}
	}
	for addr, n := range count {
		k.log.Debug(fmt.Sprintf("MPTCP connections retry %s (%d)", addr, n))
	}
	return nil
}

// joinable returns, by address, the endpoints from which connections create
// subflows.
func (k *Keeper) joinable() (map[netip.Addr]stacknet.Endpoint, error) {
	select {
	case k.looking <- struct{}{}:
	case <-k.ctx.Done():
		return nil, k.ctx.Err()
	}
	defer func() { <-k.looking }()
	n, err := k.Netlink()
	if err != nil {
		return nil, err
	}
	all, err := n.Endpoints()
	if err != nil {
		n.Close()
		k.netlink = nil
		return nil, err
	}
	endpoints := map[netip.Addr]stacknet.Endpoint{}
	for _, e := range all {
		if e.Flags&(stacknet.EndpointSubflow|stacknet.EndpointSignal) == stacknet.EndpointSubflow {
			endpoints[e.Addr.Unmap()] = e
		}
	}
	return endpoints, nil
}

// missing searches for connections without a subflow from one of the endpoints.
// The kernel sends no event for a subflow that it could not even start.
func (k *Keeper) missing(endpoints map[netip.Addr]stacknet.Endpoint) error {
	conns, err := connections(k.ctx, k.conn)
	if err != nil {
		return err
	}
	now := k.now()
	for token, locals := range conns {
		for a := range endpoints {
			if a.Is4() == locals[0].Is4() && !slices.Contains(locals, a) {
				k.joins.addMissing(join{token, a}, now)
			}
		}
	}
	return nil
}
