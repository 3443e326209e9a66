// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// listenAgain is the delay before a lost connection to the stack's netlink is
// reopened.
const listenAgain = time.Second

// listenForever calls listen again whenever its connection is lost, until the Keeper
// ends.
func (k *Keeper) listenForever(what string, listen func() error) {
	for {
		err := listen()
		if k.ctx.Err() != nil || errors.Is(err, stackconn.ErrClosed) {
			return
		}
		k.log.Debug(what, "error", err)
		select {
		case <-time.After(listenAgain):
		case <-k.ctx.Done():
			return
		}
	}
}

// receive receives the stack's reports of changes.
func (k *Keeper) receive() error {
	c, err := k.openChanges()
	if err != nil {
		return err
	}
	defer c.Close()
	k.Changed() // there may have been changes in the meantime
	return k.runChanges(c)
}

func (k *Keeper) openChanges() (*netlink.Conn, error) {
	return k.conn.Netlink(k.ctx, unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
}

func (k *Keeper) runChanges(c *netlink.Conn) error {
	for {
		msgs, err := c.Receive()
		if errors.Is(err, unix.ENOBUFS) { // some reports were lost
			k.Changed()
			continue
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(msgs, k.concerns) {
			k.Changed()
		}
	}
}

// remember stores the interfaces whose messages the Keeper must handle.
func (k *Keeper) remember(wants []Want, s *State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.indexes = wants, nil
	for _, l := range s.Links {
		k.indexes = append(k.indexes, l.Index)
	}
}

// concerns reports whether a message is about one of our interfaces. A stack
// may have thousands of others.
func (k *Keeper) concerns(m netlink.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		l, err := stacknet.ParseLink(m)
		return err != nil || slices.Contains(k.indexes, l.Index) || slices.ContainsFunc(k.known, func(w Want) bool { return w.Name == l.Name })
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) < unix.SizeofIfAddrmsg || k.isOurs(m.Data[4:])
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return true
		}
		// These messages include our own changes.
		return m.Data[5] != stacknet.Protocol && k.leadsOut(m.Data[unix.SizeofRtMsg:])
	}
	return false
}

// isOurs reports whether index, in the kernel's format, is that of one of our
// interfaces. The caller holds k.mu.
func (k *Keeper) isOurs(index []byte) bool {
	return slices.Contains(k.indexes, int(binary.NativeEndian.Uint32(index)))
}

// leadsOut reports whether the attributes of a route name one of our
// interfaces. The caller holds k.mu.
func (k *Keeper) leadsOut(attrs []byte) bool {
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return true
	}
	for ad.Next() {
		if ad.Type() == unix.RTA_OIF {
			return slices.Contains(k.indexes, int(ad.Uint32()))
		}
	}
	return false
}
