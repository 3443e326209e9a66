// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Set is what rules are made for.
type Set struct {
	Name  string `json:"name"` // of the instance
	Ports Ports  `json:"ports"`
	Links []Link `json:"links"`
}

// tag marks the rules: no other run has these ports on this host.
func (s *Set) tag() string {
	return fmt.Sprintf("lklrun-%s:%d-%d", s.Name, s.Ports.First, s.Ports.Last)
}

// Rules says where the rules of a run are, for those who come afterwards.
type Rules struct {
	Method Method `json:"method"`
	Name   string `json:"name"`
	Tag    string `json:"tag"`

	// What iptables makes beside the rules in the place where nftables keeps
	// them, and never removes, and was not there before: each "FAMILY" for a
	// table, "FAMILY chain" for a chain of one that was there.
	Made []string `json:"made,omitempty"`
}

// Method is a way to make rules.
type Method string

// The methods, best first.
const (
	// NFTIngress drops at the device, before the host's IP (table netdev).
	NFTIngress Method = "nft ingress"
	// NFTPrerouting drops first of all in IP (table inet).
	NFTPrerouting Method = "nft prerouting"
	// IPTRaw drops first of all in IP, before connections are tracked.
	IPTRaw Method = "iptables raw"
	// IPTMangle drops before the host routes a packet.
	IPTMangle Method = "iptables mangle"
	// IPTInput drops what the host has routed to itself.
	IPTInput Method = "iptables input"
	// IPTOutput lets the host's TCP see all, and drops the resets it sends.
	IPTOutput Method = "iptables output"
)

// Count is what rules have kept from the host, or of the host's resets from the
// wire (IPTOutput).
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

func (c *Count) add(d Count) {
	c.Packets += d.Packets
	c.Bytes += d.Bytes
}

// backend makes rules by one method. All of it works on what the host has now.
type backend interface {
	// available says why the method cannot be used here; nil: it may be.
	available(ctx context.Context) error
	// prepare looks at what is there before the first rule.
	prepare(ctx context.Context, r *Rules) error
	// apply puts all rules of the set in the place of those that are there.
	apply(ctx context.Context, s *Set) error
	// look tells whether all rules of the set are there, and what they counted.
	look(ctx context.Context, s *Set) (complete bool, c Count, err error)
	// remove takes away whatever bears the tag.
	remove(ctx context.Context, r *Rules) error
	// print writes how a person would make the rules.
	print(w io.Writer, s *Set) error
}

func backendOf(m Method) backend {
	switch m {
	case NFTIngress:
		return nft{ingress: true}
	case NFTPrerouting:
		return nft{}
	case IPTRaw:
		return iptables{table: "raw", chain: "PREROUTING"}
	case IPTMangle:
		return iptables{table: "mangle", chain: "PREROUTING"}
	case IPTInput:
		return iptables{table: "filter", chain: "INPUT"}
	case IPTOutput:
		return iptables{table: "filter", chain: "OUTPUT", resets: true}
	}
	return nil
}

// Remove takes a run's rules away. Those that are gone already, or not the
// run's, are left alone.
func Remove(ctx context.Context, r Rules) error {
	b := backendOf(r.Method)
	if b == nil {
		return fmt.Errorf("removing rules: unknown method %q", r.Method)
	}
	return b.remove(ctx, &r)
}

// errLacking says that the host does not offer a method at all.
var errLacking = errors.New("the host has none")
