// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Set describes the purpose of a set of rules.
type Set struct {
	Name  string `json:"name"` // of the instance
	Ports Ports  `json:"ports"`
	Links []Link `json:"links"`
}

// tag returns the mark of the rules. It is unique, because no other run on this
// host has these ports.
func (s *Set) tag() string {
	return fmt.Sprintf("lklrun-%s:%d-%d", s.Name, s.Ports.First, s.Ports.Last)
}

// Rules records the place of a run's rules, for their removal by another
// process.
type Rules struct {
	Method Method `json:"method"`
	Name   string `json:"name"`
	Tag    string `json:"tag"`

	// Made lists the objects that iptables created implicitly in nftables
	// and that did not exist before. iptables itself never removes them. An
	// entry is "FAMILY" for a table, or "FAMILY chain" for a chain of an
	// existing table.
	Made []string `json:"made,omitempty"`
}

// Method is a way to create rules.
type Method string

// The methods, best first.
const (
	// NFTIngress drops packets at the device, before the host's IP (table
	// netdev).
	NFTIngress Method = "nft ingress"
	// NFTPrerouting drops packets as the first step of IP (table inet).
	NFTPrerouting Method = "nft prerouting"
	// IPTRaw drops packets as the first step of IP, before connection
	// tracking.
	IPTRaw Method = "iptables raw"
	// IPTMangle drops packets before the host's routing decision.
	IPTMangle Method = "iptables mangle"
	// IPTInput drops packets that the host has routed to itself.
	IPTInput Method = "iptables input"
)

// Count counts the packets that the rules have hidden from the host.
type Count struct {
	Packets uint64 `json:"packets"` // packets
	Bytes   uint64 `json:"bytes"`   // bytes
}

func (c *Count) add(d Count) {
	c.Packets += d.Packets
	c.Bytes += d.Bytes
}

// backend creates rules by one method. Its operations work on the present rules
// of the host.
type backend interface {
	// available returns an error if the method cannot be used here.
	available(ctx context.Context) error
	// prepare records the state before the first rule.
	prepare(ctx context.Context, r *Rules) error
	// apply replaces the existing rules by those of the set.
	apply(ctx context.Context, s *Set) error
	// look reports whether all rules of the set exist, and their counters.
	look(ctx context.Context, s *Set) (complete bool, c Count, err error)
	// remove removes all rules that have the tag.
	remove(ctx context.Context, r *Rules) error
	// print writes the rules in the form in which a person would create
	// them.
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
	}
	return nil
}

// Remove removes a run's rules. It ignores rules that are already gone, or that
// belong to something else.
func Remove(ctx context.Context, r Rules) error {
	b := backendOf(r.Method)
	if b == nil {
		return fmt.Errorf("removing rules: unknown method %q", r.Method)
	}
	return b.remove(ctx, &r)
}

// errLacking reports that the host does not support a method at all.
var errLacking = errors.New("not available on this host")
