// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// insideTable is the name of the table in the stack.
const insideTable = "lklrun"

// Inside configures the stack to reject packets that its programs send from a
// shared address and a port of the host. No answer to them would arrive. A TCP
// connect then fails with EHOSTUNREACH (EACCES with IPv6), and a UDP send fails
// with EPERM. Each call replaces the rules of an earlier one. The stack's
// kernel must have nftables.
func Inside(ctx context.Context, stack sockdiag.Dialer, links []Link, ports Ports) error {
	batch, err := compile(func(c *nftables.Conn) {
		t := &nftables.Table{Name: insideTable, Family: nftables.TableFamilyINet}
		c.AddTable(t)
		c.DelTable(t)
		if len(links) == 0 {
			return
		}
		c.AddTable(t)
		ch := c.AddChain(&nftables.Chain{
			Name: "shared", Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter,
		})
		for _, r := range insideRules(links, ports) {
			c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: r})
		}
	})
	if err != nil {
		return err
	}
	conn, err := stack.Netlink(ctx, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := transact(conn, batch); err != nil {
		return fmt.Errorf("adding rules in the stack: %w", err)
	}
	return nil
}

func insideRules(links []Link, ports Ports) [][]expr.Any {
	const reg = 1
	equal := func(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: data} }
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	// Packets that the stack sends to itself do arrive.
	rules := [][]expr.Any{{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: reg}, equal(ifname("lo")), accept}}
	from := func(a netip.Addr, proto byte) []expr.Any {
		nfproto, off := byte(unix.NFPROTO_IPV4), uint32(ip4Src)
		if a.Is6() {
			nfproto, off = unix.NFPROTO_IPV6, ip6Src
		}
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg}, equal([]byte{nfproto}),
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: off, Len: uint32(a.BitLen() / 8)},
			equal(a.AsSlice()),
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, equal([]byte{proto}),
		}
	}
	for _, l := range links {
		for _, a := range l.Addrs {
			for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				for _, p := range ports.ranges() {
					rules = append(rules, append(from(a, proto),
						&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
						&expr.Cmp{Op: expr.CmpOpGte, Register: reg, Data: binaryutil.BigEndian.PutUint16(p[0])},
						&expr.Cmp{Op: expr.CmpOpLte, Register: reg, Data: binaryutil.BigEndian.PutUint16(p[1])},
						accept))
				}
			}
			rules = append(rules,
				append(from(a, unix.IPPROTO_TCP), &expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}),
				append(from(a, unix.IPPROTO_UDP), &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}))
		}
	}
	return rules
}

// compile returns the messages of one transaction. The library offers only one
// way to get them without a socket of the host: the hook for its own tests.
func compile(build func(c *nftables.Conn)) ([]netlink.Message, error) {
	var batch []netlink.Message
	caught := errors.New("caught")
	c, err := nftables.New(nftables.WithTestDial(func(m []netlink.Message) ([]netlink.Message, error) {
		batch = append(batch, m...)
		return nil, caught
	}))
	if err != nil {
		return nil, err
	}
	build(c)
	if err := c.Flush(); err != nil && !errors.Is(err, caught) {
		return nil, err
	}
	for i := range batch { // the connection that sends the messages fills these in
		batch[i].Header.Sequence, batch[i].Header.PID = 0, 0
	}
	return batch, nil
}

// transact sends a transaction and waits for its result: an acknowledgement of
// each message, or an error for one of them.
func transact(conn *netlink.Conn, batch []netlink.Message) error {
	if _, err := conn.SendMessages(batch); err != nil {
		return err
	}
	for _, m := range batch {
		if m.Header.Flags&netlink.Acknowledge == 0 {
			continue
		}
		if _, err := conn.Receive(); err != nil {
			return err
		}
	}
	return nil
}
