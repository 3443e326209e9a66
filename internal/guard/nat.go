// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// NAT is what the host's firewall does for a tap whose stack goes out behind the
// host's own addresses: it masquerades, and lets through what another's chain for
// forwarded packets would drop.
type NAT struct {
	Tap  string
	Nets []netip.Prefix // the stack's networks
}

// tag marks all rules of one tap's.
func (n *NAT) tag() string { return "lklrun-nat-" + n.Tap }

// The chains that iptables has for it.
var (
	iptablesForward = iptables{table: "filter", chain: "FORWARD"}
	iptablesNAT     = iptables{table: "nat", chain: "POSTROUTING"}
)

// CheckNAT says why the host can masquerade by neither nftables nor iptables.
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

// Apply makes the rules.
func (n *NAT) Apply(ctx context.Context) error {
	if err := (nft{}).available(ctx); err != nil {
		err = n.iptablesMasquerade(ctx)
		if err != nil {
			return err
		}
	} else if err := n.nftMasquerade(ctx); err != nil {
		return err
	} else if err := n.nftForward(ctx); err != nil {
		return err
	}
	return n.iptablesAccept(ctx)
}

// Remove takes away all rules for the tap, whoever made them.
func (n *NAT) Remove(ctx context.Context) error {
	errs := []error{iptablesForward.drop(ctx, n.tag())}
	if (nft{}).available(ctx) == nil {
		errs = append(errs, n.nftRemove(ctx))
	} else {
		errs = append(errs, iptablesNAT.drop(ctx, n.tag()))
	}
	return errors.Join(errs...)
}

func (n *NAT) table() *nftables.Table {
	return &nftables.Table{Name: n.tag(), Family: nftables.TableFamilyINet}
}

// nftMasquerade gives the tap a table of its own.
func (n *NAT) nftMasquerade(ctx context.Context) error {
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
	for _, net := range n.Nets {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: masquerade(net, n.Tap), UserData: n.comment()})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("making nft rules: %w", err)
	}
	return nil
}

func (n *NAT) comment() []byte {
	return userdata.AppendString(nil, userdata.TypeComment, n.tag())
}

// masquerade is what comes from net and leaves by another device than tap.
func masquerade(net netip.Prefix, tap string) []expr.Any {
	family, offset, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4) // struct iphdr, saddr
	if net.Addr().Is6() {
		family, offset, size = unix.NFPROTO_IPV6, 8, 16 // struct ipv6hdr
	}
	mask := make([]byte, size)
	for bit := range net.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: net.Masked().Addr().AsSlice()},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: ifname(tap)},
		&expr.Masq{},
	}
}

// nftForward lets the stack's packets through every other chain that might drop
// what is forwarded; an accept counts for one chain only.
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
		return fmt.Errorf("letting forwarded packets through the host's nft chains: %w", err)
	}
	return nil
}

// forwardChains lists the chains of others at the hook for forwarded packets,
// without those that iptables keeps: it could not read our rules.
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

// toTap is what answers the stack.
func toTap(tap string) []expr.Any {
	state := binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(tap)},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: state, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// nftRemove deletes the tap's table, and its rules in others' chains.
func (n *NAT) nftRemove(ctx context.Context) error {
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
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) { // somebody was faster
		return fmt.Errorf("removing nft rules: %w", err)
	}
	return nil
}

// iptablesMasquerade is for hosts without nftables.
func (n *NAT) iptablesMasquerade(ctx context.Context) error {
	return n.iptables(ctx, iptablesNAT, func(net netip.Prefix) [][]string {
		return [][]string{{"-s", net.Masked().String(), "!", "-o", n.Tap, "-j", "MASQUERADE"}}
	})
}

// iptablesAccept lets the stack's packets through iptables' FORWARD, where that
// is in use.
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

func (n *NAT) iptables(ctx context.Context, t iptables, rules func(netip.Prefix) [][]string) error {
	for _, net := range n.Nets {
		p, err := findTool(ctx, net.Addr().Is6())
		if err != nil {
			return err
		}
		if err := t.replace(ctx, p, n.tag(), n.tagged(t, rules(net))); err != nil {
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
