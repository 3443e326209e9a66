// SPDX-License-Identifier: Apache-2.0

package whynot

import (
	"fmt"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// A clue is a counter of fallbacks with its meaning. Names and meanings are from
// net/mptcp/mib.h.
type clue struct {
	counter string
	code    Code
	text    string
	remedy  string
}

// early are the reasons why MP_CAPABLE was not sent, or no longer sent.
var early = []clue{
	{"MPCapableSYNTXDrop", SynDropped, "SYNs with MP_CAPABLE got no answer, one without did: something on the path drops them", "another path, or another network"},
	{"MPCapableSYNTXDisabled", Disabled, "MPTCP is switched off for a time, as an earlier connection's SYNs with MP_CAPABLE got no answer (Blackhole)", "lklctl sysctl -w net.mptcp.blackhole_timeout=0 keeps it on, for new connections"},
	{"MD5SigFallback", MD5, "the program has asked for TCP MD5 signatures (RFC 2385), which leave no room for MPTCP's options", ""},
	{"MPFallbackTokenInit", NoToken, "the stack found no token for it that was free", ""},
	{"SimultConnectFallback", Simultaneous, "both sides connected to each other at once, which MPTCP cannot", ""},
}

// late are the reasons why MPTCP was given up after both sides had agreed on it.
var late = []clue{
	{"DataCsumErr", BadChecksum, "the checksum of its data was wrong: something on the path changes them", "TLS; or another path"},
	{"InfiniteMapRx", Infinite, "the peer has gone over to plain TCP (infinite mapping), as its checksums were wrong: something on the path changes the data", "TLS; or another path"},
	{"InfiniteMapTx", Infinite, "this side has gone over to plain TCP (infinite mapping), as the peer said that checksums were wrong: something on the path changes the data", "TLS; or another path"},
	{"DSSCorruptionFallback", Corrupt, "data came with a mapping (DSS) that does not fit: something on the path joins, splits or changes segments", "another path"},
	{"MPCapableDataFallback", DataStripped, "both sides had agreed on MPTCP, then segments came without its options: something on the path strips them", "another path"},
	{"DssFallback", DataStripped, "both sides had agreed on MPTCP, then segments came without its options: something on the path strips them", "another path"},
	{"SimultConnectFallback", Simultaneous, "both sides connected to each other at once, which MPTCP cannot", ""},
}

// fallback explains why c, which has an MPTCP socket, is plain TCP.
func (s *stack) fallback(c *sockdiag.Connection) Reason {
	var flags sockdiag.SubflowFlags
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil {
			flags |= f.Flags
		}
	}
	switch {
	case c.MPTCP.RemoteKey || flags&sockdiag.FlagCapableRemote != 0:
		return s.oneOf(late, "it was MPTCP at first, then one side has given it up")
	case s.passive(c):
		return Reason{Code: Stripped, Text: "the peer's SYN had MP_CAPABLE and its next segment had not: something on the path strips MPTCP's options", Remedy: "another path"}
	case flags&sockdiag.FlagCapableLocal == 0:
		return s.oneOf(early, "MP_CAPABLE was not sent, or given up before an answer")
	}
	peer := c.Remote.Addr().Unmap()
	if s.Speaks[peer] {
		return Reason{
			Code: Stripped, Remedy: "another path, or a port that is let through",
			Text: fmt.Sprintf("%v answered without MP_CAPABLE, though it has MPTCP with other connections: its program does not use it, or something on the path strips the option", peer),
		}
	}
	return Reason{
		Code: NoCapable, Remedy: "on the server: sysctl net.mptcp.enabled=1, and a program that uses it (mptcpize run); else another path",
		Text: fmt.Sprintf("%v answered without MP_CAPABLE: it has no MPTCP, or something on the path strips the option", peer),
	}
}

// oneOf picks the clue whose counter is not zero. If there are several, it is unknown
// which one applies to this connection.
func (s *stack) oneOf(clues []clue, otherwise string) Reason {
	var texts, counters []string
	var first *clue
	for i := range clues {
		k := &clues[i]
		if s.count(k.counter) == 0 {
			continue
		}
		counters = append(counters, k.counter)
		if first == nil {
			first = k
		}
		if len(texts) == 0 || texts[len(texts)-1] != k.text {
			texts = append(texts, k.text)
		}
	}
	switch len(texts) {
	case 0:
		return Reason{Code: Fallback, Text: otherwise}
	case 1:
		return Reason{Code: first.code, Text: first.text, Remedy: first.remedy}
	}
	return Reason{Code: Fallback, Text: otherwise + "; the stack has counted several causes: " + strings.Join(counters, ", "), Remedy: "lklctl counters MPTcpExt"}
}
