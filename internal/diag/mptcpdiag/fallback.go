// SPDX-License-Identifier: Apache-2.0

package mptcpdiag

import (
	"fmt"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// anotherType is the remedy if TCP ends at lklrun's gateway.
const anotherType = "for MPTCP to the peer, use --if tap:NAME,nat or --if raw:DEV instead of --if user"

// A fallbackCounter is a counter of fallbacks together with its meaning. Names and meanings are from
// net/mptcp/mib.h.
type fallbackCounter struct {
	counter string
	code    Code
	text    string
	remedy  string
}

// early contains the reasons why MP_CAPABLE was not sent, or was sent no longer.
var early = []fallbackCounter{
	{"MPCapableSYNTXDrop", SynDropped, "only a SYN without MP_CAPABLE was answered: something on the path drops SYNs with it", "use another path or network"},
	{"MPCapableSYNTXDisabled", Disabled, "MPTCP is disabled for a time, because SYNs with MP_CAPABLE of an earlier connection got no answer (blackhole detection)", "lklctl sysctl -w net.mptcp.blackhole_timeout=0 keeps MPTCP enabled for new connections"},
	{"MD5SigFallback", MD5, "the program uses TCP MD5 signatures (RFC 2385), which leave no room for MPTCP options", ""},
	{"MPFallbackTokenInit", NoToken, "the stack found no free MPTCP token for the connection", ""},
	{"SimultConnectFallback", Simultaneous, "both sides connected to each other at the same time, which MPTCP does not support", ""},
}

// late contains the reasons why a connection abandoned MPTCP after both sides had agreed
// on it.
var late = []fallbackCounter{
	{"DataCsumErr", BadChecksum, "the data checksum was wrong: something on the path changes the data", "use TLS, or another path"},
	{"InfiniteMapRx", Infinite, "the peer fell back to TCP (infinite mapping) because of wrong checksums: something on the path changes the data", "use TLS, or another path"},
	{"InfiniteMapTx", Infinite, "this side fell back to TCP (infinite mapping) because the peer reported wrong checksums: something on the path changes the data", "use TLS, or another path"},
	{"DSSCorruptionFallback", Corrupt, "data arrived with an invalid mapping (DSS): something on the path merges, splits or changes segments", "use another path"},
	{"MPCapableDataFallback", DataStripped, "both sides negotiated MPTCP, but later segments arrived without its options: something on the path strips them", "use another path"},
	{"DssFallback", DataStripped, "both sides negotiated MPTCP, but later segments arrived without its options: something on the path strips them", "use another path"},
	{"SimultConnectFallback", Simultaneous, "both sides connected to each other at the same time, which MPTCP does not support", ""},
}

// fallback explains why c is plain TCP although it has an MPTCP socket.
func (s *stack) fallback(c *sockdiag.Connection) Reason {
	var flags sockdiag.SubflowFlags
	for i := range c.Subflows {
		if f := c.Subflows[i].Subflow; f != nil {
			flags |= f.Flags
		}
	}
	l := s.gatewayOf(c)
	switch {
	case l != nil && s.onlyGateways():
		return Reason{Code: Gateway, Text: fmt.Sprintf("TCP ends at lklrun's gateway on %s, and the host's kernel makes the connection to the peer", l.Name), Remedy: anotherType}
	case l != nil:
		return Reason{
			Code: Gateway, Remedy: "remove --if user, or make it the last --if",
			Text: fmt.Sprintf("the connection uses %s, and TCP ends at lklrun's gateway there", l.Name),
		}
	case c.MPTCP.RemoteKey || flags&sockdiag.FlagCapableRemote != 0:
		return s.oneOf(late, "the connection started with MPTCP, and one side fell back to TCP")
	case s.passive(c):
		return Reason{Code: Stripped, Text: "the peer's SYN had MP_CAPABLE but its next segment did not: something on the path strips MPTCP options", Remedy: "use another path"}
	case flags&sockdiag.FlagCapableLocal == 0:
		return s.oneOf(early, "MP_CAPABLE was not sent, or it was dropped before the first answer")
	}
	peer := c.Remote.Addr().Unmap()
	if s.MPTCPPeers[peer] {
		return Reason{
			Code: Stripped, Remedy: "use another path, or a port that is not filtered",
			Text: fmt.Sprintf("%v answered without MP_CAPABLE, although it uses MPTCP on other connections: its program does not enable MPTCP, or something on the path strips the option", peer),
		}
	}
	return Reason{
		Code: NoCapable, Remedy: "on the server, set sysctl net.mptcp.enabled=1 and enable MPTCP in the program (mptcpize run); otherwise use another path",
		Text: fmt.Sprintf("%v answered without MP_CAPABLE: it does not support MPTCP, or something on the path strips the option", peer),
	}
}

// oneOf selects the clue whose counter is not zero. If several counters are not zero, it
// is unknown which one applies to this connection.
func (s *stack) oneOf(clues []fallbackCounter, otherwise string) Reason {
	var texts, counters []string
	var first *fallbackCounter
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
	return Reason{Code: Fallback, Text: otherwise + "; possible causes, by the stack's counters: " + strings.Join(counters, ", "), Remedy: "lklctl counters MPTcpExt"}
}
