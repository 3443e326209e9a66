// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// NAT holds the firewall rules for a tap whose stack uses the host's addresses
// for outgoing packets. The rules masquerade its packets, accept those that
// other forward chains would drop, and drop packets that the host did not
// forward before these taps existed.
type NAT struct {
	Tap  string
	Nets []netip.Prefix // the stack's networks

	// Only4 and Only6 report that the host forwards IPv4 or IPv6 only for
	// such taps.
	Only4, Only6 bool
	Open         []int // indices of the devices from which the host forwarded IPv4 before
}

// NATGroup is the device group (`ip link show group`) of all such taps.
const NATGroup = 0x6c6b6c

// tag returns the mark of all rules of a tap, which is also the name of its
// table.
func (n *NAT) tag() string { return natTag + n.Tap }

const natTag = "lklrun-nat-"

// The iptables chains that NAT uses.
var (
	iptablesForward = iptables{table: "filter", chain: "FORWARD"}
	iptablesNAT     = iptables{table: "nat", chain: "POSTROUTING"}
	iptablesFence   = iptables{table: "mangle", chain: "FORWARD"} // runs before the filter table's FORWARD
)

// CheckNAT returns an error if the host can masquerade with neither nftables
// nor iptables.
func CheckNAT(ctx context.Context) error {
	err := nft{}.available(ctx)
	if err == nil {
		return nil
	}
	if _, terr := findTool(ctx, false); terr != nil {
		return errors.Join(err, terr)
	}
	return nil
}

// Apply creates the rules.
func (n *NAT) Apply(ctx context.Context) error {
	if err := (nft{}).available(ctx); err != nil {
		if err := n.iptablesTables(ctx); err != nil {
			return err
		}
	} else if err := n.nftTable(ctx); err != nil {
		return err
	} else if err := n.nftForward(ctx); err != nil {
		return err
	}
	return n.iptablesAccept(ctx)
}

// Remove removes all rules for the tap, whichever run created them.
func (n *NAT) Remove(ctx context.Context) error {
	errs := []error{iptablesForward.drop(ctx, n.tag())}
	if (nft{}).available(ctx) == nil {
		errs = append(errs, n.nftRemove(ctx))
	} else {
		errs = append(errs, iptablesNAT.drop(ctx, n.tag()), iptablesFence.drop(ctx, n.tag()))
	}
	return errors.Join(errs...)
}

func (n *NAT) table() *nftables.Table {
	return &nftables.Table{Name: n.tag(), Family: nftables.TableFamilyINet}
}

// nftTable creates the tap's own table.
func (n *NAT) nftTable(ctx context.Context) error {
	c, err := nft{}.open(ctx)
	if err != nil {
		return err
	}
	c.AddTable(n.table())
	c.DelTable(n.table())
	t := c.AddTable(n.table())
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, prefix := range n.Nets {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: masquerade(prefix, n.Tap), UserData: n.comment()})
	}
	fence := c.AddChain(&nftables.Chain{
		Name: "forward", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	for _, e := range n.fence() {
		c.AddRule(&nftables.Rule{Table: t, Chain: fence, Exprs: e, UserData: n.comment()})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("adding nft rules: %w", err)
	}
	return nil
}

func (n *NAT) comment() []byte {
	return userdata.AppendString(nil, userdata.TypeComment, n.tag())
}

// masquerade matches packets that come from a network and leave through a
// device other than tap. It masquerades them.
func masquerade(from netip.Prefix, tap string) []expr.Any {
	family, offset, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4) // struct iphdr, saddr
	if from.Addr().Is6() {
		family, offset, size = unix.NFPROTO_IPV6, 8, 16 // struct ipv6hdr
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: net.CIDRMask(from.Bits(), from.Addr().BitLen()), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.Masked().Addr().AsSlice()},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: ifname(tap)},
		&expr.Masq{},
	}
}

// fence returns the rules that drop packets instead of forwarding them. They
// drop packets to the stack that belong to none of its connections and were not
// redirected to it (DNAT). If the host forwards a family only for such taps,
// they also drop all packets of that family that involve no such tap.
func (n *NAT) fence() [][]expr.Any {
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	all := [][]expr.Any{{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(n.Tap)},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, hasBits(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}, hasBits(ipsDstNAT),
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
		drop,
	}}
	if n.Only4 {
		e := others(unix.NFPROTO_IPV4)
		for _, index := range n.Open {
			e = append(e, &expr.Meta{Key: expr.MetaKeyIIF, Register: 1},
				&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(uint32(index))})
		}
		all = append(all, append(e, drop))
	}
	if n.Only6 {
		all = append(all, append(others(unix.NFPROTO_IPV6), drop))
	}
	return all
}

// ipsDstNAT is IPS_DST_NAT, linux/netfilter/nf_conntrack_common.h.
const ipsDstNAT = 1 << 5

func hasBits(mask uint32) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4)}
}

// others matches packets that neither come from such a tap nor go to one.
func others(family byte) []expr.Any {
	group := binaryutil.NativeEndian.PutUint32(NATGroup)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Meta{Key: expr.MetaKeyIIFGROUP, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: group},
		&expr.Meta{Key: expr.MetaKeyOIFGROUP, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: group},
	}
}

// nftForward accepts the stack's packets in every other chain that might drop
// forwarded packets. An accept applies to one chain only.
func (n *NAT) nftForward(ctx context.Context) error {
	c, err := nft{}.open(ctx)
	if err != nil {
		return err
	}
	chains, err := forwardChains(c)
	if err != nil || len(chains) == 0 {
		return err
	}
	for _, ch := range chains {
		for _, e := range [][]expr.Any{fromTap(n.Tap), toTap(n.Tap)} {
			c.InsertRule(&nftables.Rule{Table: ch.Table, Chain: ch, Exprs: e, UserData: n.comment()})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("accepting forwarded packets in the host's nft chains: %w", err)
	}
	return nil
}

// forwardChains lists the chains of other programs at the forward hook. It
// omits those of iptables, which could not read our rules.
func forwardChains(c *nftables.Conn) ([]*nftables.Chain, error) {
	all, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("listing nft chains: %w", err)
	}
	return slices.DeleteFunc(all, func(ch *nftables.Chain) bool {
		if ch.Hooknum == nil || *ch.Hooknum != *nftables.ChainHookForward || ch.Type != nftables.ChainTypeFilter {
			return true
		}
		switch ch.Table.Family {
		case nftables.TableFamilyINet:
			if strings.HasPrefix(ch.Table.Name, natTag) {
				return true
			}
		case nftables.TableFamilyIPv4, nftables.TableFamilyIPv6:
			if ch.Name == strings.ToUpper(ch.Name) {
				return true
			}
		default:
			return true
		}
		if ch.Policy != nil && *ch.Policy == nftables.ChainPolicyDrop {
			return false
		}
		rules, err := c.GetRules(ch.Table, ch)
		return err != nil || len(rules) == 0
	}), nil
}

func fromTap(tap string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(tap)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// toTap matches the answers that are forwarded to the stack.
func toTap(tap string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(tap)},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		hasBits(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// nftRemove deletes the tap's table and its rules in other chains, in one
// transaction. If another program has deleted one of these in the meantime,
// nftRemove retries.
func (n *NAT) nftRemove(ctx context.Context) error {
	var err error
	for range dropTries {
		if err = n.nftRemoveOnce(ctx); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (n *NAT) nftRemoveOnce(ctx context.Context) error {
	c, err := nft{}.open(ctx)
	if err != nil {
		return err
	}
	_, ours, err := chainsOf(c, n.table())
	if err != nil {
		return err
	}
	if ours {
		c.DelTable(n.table())
	}
	chains, err := forwardChains(c)
	if err != nil {
		return err
	}
	for _, ch := range chains {
		rules, err := c.GetRules(ch.Table, ch)
		if err != nil {
			return fmt.Errorf("listing the rules of table %s: %w", ch.Table.Name, err)
		}
		for _, r := range rules {
			if comment(r) != n.tag() {
				continue
			}
			r.Chain, r.Table = ch, ch.Table
			if err := c.DelRule(r); err != nil {
				return fmt.Errorf("deleting a rule of table %s: %w", ch.Table.Name, err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("removing nft rules: %w", err)
	}
	return nil
}

// iptablesTables creates the rules on hosts without nftables.
func (n *NAT) iptablesTables(ctx context.Context) error {
	for _, six := range []bool{false, true} {
		var masquerade [][]string
		for _, prefix := range n.Nets {
			if prefix.Addr().Is6() == six {
				masquerade = append(masquerade, []string{"-s", prefix.Masked().String(), "!", "-o", n.Tap, "-j", "MASQUERADE"})
			}
		}
		if masquerade == nil && !(six && n.Only6) {
			continue
		}
		p, err := findTool(ctx, six)
		if err != nil {
			return err
		}
		if err := iptablesNAT.replace(ctx, p, n.tag(), n.tagged(iptablesNAT, masquerade)); err != nil {
			return err
		}
		if err := iptablesFence.replace(ctx, p, n.tag(), n.tagged(iptablesFence, n.fenceRules(six))); err != nil {
			return err
		}
	}
	return nil
}

// fenceRules returns the rules of fence, the last one first.
func (n *NAT) fenceRules(six bool) [][]string {
	var all [][]string
	if six && n.Only6 || !six && n.Only4 {
		group := fmt.Sprintf("%#x", NATGroup)
		all = append(all, []string{"-m", "devgroup", "!", "--src-group", group, "!", "--dst-group", group, "-j", "DROP"})
		for _, index := range n.Open {
			if dev, err := net.InterfaceByIndex(index); err == nil && !six {
				all = append(all, []string{"-i", dev.Name, "-j", "ACCEPT"})
			}
		}
	}
	return append(all, []string{"-o", n.Tap, "-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"})
}

// iptablesAccept accepts the stack's packets in iptables' FORWARD chain, if
// that is in use.
func (n *NAT) iptablesAccept(ctx context.Context) error {
	for _, six := range []bool{false, true} {
		p, err := findTool(ctx, six)
		if errors.Is(err, errLacking) {
			continue
		}
		if err != nil {
			return err
		}
		there, err := iptablesForward.there(ctx, p)
		if err != nil {
			return err
		}
		if !there || !slices.ContainsFunc(n.Nets, func(x netip.Prefix) bool { return x.Addr().Is6() == six }) {
			continue
		}
		err = iptablesForward.replace(ctx, p, n.tag(), n.tagged(iptablesForward, [][]string{
			{"-i", n.Tap, "-j", "ACCEPT"},
			{"-o", n.Tap, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *NAT) tagged(t iptables, rules [][]string) [][]string {
	var all [][]string
	for _, r := range rules {
		all = append(all, slices.Concat([]string{"-I", t.chain, "-m", "comment", "--comment", n.tag()}, r))
	}
	return all
}
