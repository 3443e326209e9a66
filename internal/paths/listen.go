// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/internal/stacknet"
)

// listenAgain is how soon a lost connection to the stack's netlink is made again.
const listenAgain = time.Second

// persist calls listen anew when its connection is lost, until the Keeper's end.
func (k *Keeper) persist(what string, listen func() error) {
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

// hear hears of what changes in the stack.
func (k *Keeper) hear() error {
	c, err := k.conn.Netlink(k.ctx, unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return err
	}
	defer c.Close()
	k.Changed() // meanwhile, perhaps
	for {
		msgs, err := c.Receive()
		if errors.Is(err, unix.ENOBUFS) { // more has happened than it could keep
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

// remember keeps what a message must be about to concern us.
func (k *Keeper) remember(wants []Want, s *State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.indexes = wants, nil
	for _, l := range s.Links {
		k.indexes = append(k.indexes, l.Index)
	}
}

// concerns says whether a message is about an interface of ours. A stack may
// have thousands of others.
func (k *Keeper) concerns(m netlink.Message) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return true
		}
		return k.isOurs(m.Data[4:]) || k.isNamed(m.Data[unix.SizeofIfInfomsg:])
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) < unix.SizeofIfAddrmsg || k.isOurs(m.Data[4:])
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return true
		}
		// Our own come by these too.
		return m.Data[5] != stacknet.Protocol && k.leadsOut(m.Data[unix.SizeofRtMsg:])
	}
	return false
}

// isOurs reads an interface's index; k.mu is held.
func (k *Keeper) isOurs(index []byte) bool {
	return slices.Contains(k.indexes, int(binary.NativeEndian.Uint32(index)))
}

// isNamed looks for the name of an interface among the attributes of a link;
// k.mu is held.
func (k *Keeper) isNamed(attrs []byte) bool {
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return true
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_IFNAME {
			name := ad.String()
			return slices.ContainsFunc(k.known, func(w Want) bool { return w.Name == name })
		}
	}
	return false
}

// leadsOut looks for the interface among the attributes of a route; k.mu is
// held.
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
