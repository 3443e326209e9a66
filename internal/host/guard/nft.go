// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// nft creates rules with nf_tables. Each run has a table named lklrun-NAME,
// whose rules have the tag as their comment. At the ingress hook each device
// has its own chain; at prerouting one chain serves all.
type nft struct{ ingress bool }

const (
	nftLimit = 5 * time.Second

	// The rules run before all other chains, because no other rule of the
	// host concerns the stack's packets. -400 comes before connection
	// tracking and before "raw".
	nftPriority = -400
)

func (n nft) family() nftables.TableFamily {
	if n.ingress {
		return nftables.TableFamilyNetdev
	}
	return nftables.TableFamilyINet
}

func (n nft) table(name string) *nftables.Table {
	return &nftables.Table{Name: "lklrun-" + name, Family: n.family()}
}

// open opens a connection whose operations all have a timeout.
func (n nft) open(ctx context.Context) (*nftables.Conn, error) {
	limit := time.Now().Add(nftLimit)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetDeadline(limit) }))
}

func (n nft) available(ctx context.Context) error {
	c, err := n.open(ctx)
	if err != nil {
		return err
	}
	switch _, err = c.ListTablesOfFamily(n.family()); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("nftables: %w: CAP_NET_ADMIN is required", unix.EPERM)
	}
	// EPROTONOSUPPORT means that the kernel has no netfilter netlink, and
	// EINVAL that it has no nf_tables.
	return fmt.Errorf("nftables: %w (%w)", errLacking, err)
}

func (n nft) prepare(ctx context.Context, r *Rules) error {
	_, err := n.owned(ctx, r.Name, r.Tag)
	return err
}

// owned reports whether the run's table exists. It returns an error if a table
// of that name belongs to something else.
func (n nft) owned(ctx context.Context, name, tag string) (bool, error) {
	c, err := n.open(ctx)
	if err != nil {
		return false, err
	}
	t := n.table(name)
	chains, ok, err := chainsOf(c, t)
	if err != nil || !ok {
		return false, err
	}
	for _, ch := range chains {
		rules, err := c.GetRules(t, ch)
		if err != nil {
			return false, fmt.Errorf("listing the rules of table %s: %w", t.Name, err)
		}
		for _, r := range rules {
			if comment(r) != tag {
				return false, &foreignError{t.Name}
			}
		}
	}
	return true, nil // an empty table is ours: another program has flushed it
}

// foreignError reports that a table has a run's name but does not belong to the
// run.
type foreignError struct{ table string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("the host already has an nft table %s, which this run did not create; if an ended run left it, run `lklrun cleanup`, otherwise choose another --name", e.table)
}

func comment(r *nftables.Rule) string {
	text := userdata.Get(r.UserData, userdata.TypeComment)
	return string(trimNUL(text))
}

func trimNUL(b []byte) []byte {
	if n := slices.Index(b, 0); n >= 0 {
		return b[:n]
	}
	return b
}

// chainsOf lists the chains of a table. ok reports whether the table exists.
func chainsOf(c *nftables.Conn, t *nftables.Table) (chains []*nftables.Chain, ok bool, err error) {
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return nil, false, fmt.Errorf("listing nft tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(o *nftables.Table) bool { return o.Name == t.Name }) {
		return nil, false, nil
	}
	all, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return nil, false, fmt.Errorf("listing nft chains: %w", err)
	}
	for _, ch := range all {
		if ch.Table.Name == t.Name {
			chains = append(chains, ch)
		}
	}
	return chains, true, nil
}

func (n nft) apply(ctx context.Context, s *Set) error {
	if _, err := n.owned(ctx, s.Name, s.tag()); err != nil {
		return err
	}
	c, err := n.open(ctx)
	if err != nil {
		return err
	}
	// Replace the table in one transaction. Adding the table first ensures
	// that it exists and can be deleted.
	c.AddTable(n.table(s.Name))
	c.DelTable(n.table(s.Name))
	t := c.AddTable(n.table(s.Name))
	for _, ch := range n.chains(s) {
		ch.Table = t
		c.AddChain(&ch.Chain)
		for _, e := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: &ch.Chain, Exprs: e, UserData: userdata.AppendString(nil, userdata.TypeComment, s.tag())})
		}
	}
	if err := c.Flush(); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("adding nft rules: %w: CAP_NET_ADMIN is required", unix.EPERM)
		}
		return fmt.Errorf("adding nft rules: %w", err)
	}
	return nil
}

// nftChain is a chain with its rules.
type nftChain struct {
	nftables.Chain
	rules [][]expr.Any
}

func (n nft) chains(s *Set) []nftChain {
	var all []nftChain
	accept := nftables.ChainPolicyAccept
	if !n.ingress {
		all = []nftChain{{Chain: nftables.Chain{
			Name: "guard", Type: nftables.ChainTypeFilter, Policy: &accept,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(nftPriority),
		}}}
	}
	for i, l := range s.Links {
		if !deviceExists(l.Device) {
			continue // a missing device receives no packets
		}
		if n.ingress {
			all = append(all, nftChain{Chain: nftables.Chain{
				Name: fmt.Sprintf("guard%d", i), Type: nftables.ChainTypeFilter, Policy: &accept, Device: l.Device,
				Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityRef(nftPriority),
			}})
		}
		ch := &all[len(all)-1]
		for _, a := range l.Addrs {
			for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				for _, p := range s.Ports.ranges() {
					ch.rules = append(ch.rules, n.rule(l.Device, a, proto, p))
				}
			}
		}
	}
	return all
}

// ifname returns a device name in the form that the kernel compares.
func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func deviceExists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// ranges returns the range and the servers' ports as pairs of first and last
// port.
func (p Ports) ranges() [][2]uint16 {
	all := [][2]uint16{{p.First, p.Last}}
	for _, l := range p.outside() {
		all = append(all, [2]uint16{l, l})
	}
	return all
}

// rule returns the rule that drops packets to the address and the ports. It
// uses the same expressions as nft(8), so that nft lists it in its usual
// syntax.
func (n nft) rule(device string, a netip.Addr, proto byte, ports [2]uint16) []expr.Any {
	const reg = 1
	equal := func(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: data} }
	etherType, nfproto, off := uint16(unix.ETH_P_IP), byte(unix.NFPROTO_IPV4), uint32(ip4Dst)
	if a.Is6() {
		etherType, nfproto, off = unix.ETH_P_IPV6, unix.NFPROTO_IPV6, ip6Dst
	}
	var e []expr.Any
	if n.ingress {
		e = append(e, &expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: reg}, equal(binaryutil.BigEndian.PutUint16(etherType)))
	} else {
		e = append(e, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg}, equal(ifname(device)),
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg}, equal([]byte{nfproto}))
	}
	e = append(e,
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: off, Len: uint32(a.BitLen() / 8)},
		equal(a.AsSlice()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, equal([]byte{proto}),
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
	if first, last := binaryutil.BigEndian.PutUint16(ports[0]), binaryutil.BigEndian.PutUint16(ports[1]); ports[0] == ports[1] {
		e = append(e, equal(first))
	} else {
		e = append(e, &expr.Cmp{Op: expr.CmpOpGte, Register: reg, Data: first}, &expr.Cmp{Op: expr.CmpOpLte, Register: reg, Data: last})
	}
	return append(e, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
}

func (n nft) look(ctx context.Context, s *Set) (complete bool, count Count, err error) {
	c, err := n.open(ctx)
	if err != nil {
		return false, count, err
	}
	t := n.table(s.Name)
	chains, ok, err := chainsOf(c, t)
	if err != nil || !ok {
		return false, count, err
	}
	complete = true
	for _, want := range n.chains(s) {
		i := slices.IndexFunc(chains, func(ch *nftables.Chain) bool { return ch.Name == want.Name })
		if i < 0 {
			complete = false
			continue
		}
		rules, err := c.GetRules(t, chains[i])
		if err != nil {
			return false, count, fmt.Errorf("listing the rules of table %s: %w", t.Name, err)
		}
		ours := 0
		for _, r := range rules {
			if comment(r) != s.tag() {
				continue
			}
			ours++
			for _, e := range r.Exprs {
				if k, ok := e.(*expr.Counter); ok {
					count.add(Count{k.Packets, k.Bytes})
				}
			}
		}
		complete = complete && ours == len(want.rules)
	}
	return complete, count, nil
}

func (n nft) remove(ctx context.Context, r *Rules) error {
	ours, err := n.owned(ctx, r.Name, r.Tag)
	var foreign *foreignError
	if errors.As(err, &foreign) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing nft rules: %w", err)
	}
	if !ours {
		return nil
	}
	c, err := n.open(ctx)
	if err != nil {
		return err
	}
	c.DelTable(n.table(r.Name))
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing nft rules: %w", err)
	}
	return nil
}
