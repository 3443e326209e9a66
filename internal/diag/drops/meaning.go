// SPDX-License-Identifier: Apache-2.0

package drops

import "strings"

// Meaning explains a reason: of a drop as in include/net/dropreason-core.h, or of a reset
// as in include/net/rstreason.h and RFC 8684, section 3.6, or of a retransmission. If it
// has no explanation, it returns the name in lower case.
func Meaning(reason string) string {
	if m := meanings[reason]; m != "" {
		return m
	}
	return strings.ToLower(strings.ReplaceAll(reason, "_", " "))
}

// Known reports whether a reason has an explanation.
func Known(reason string) bool { return meanings[reason] != "" }

// meaningIn explains a reason that a function of the kernel gives.
func meaningIn(reason, function string) string {
	if m := special[[2]string{reason, function}]; m != "" {
		return m
	}
	return Meaning(reason)
}

const noConnection = "the kernel gives no reason; the SYN was repeated, or the connection is in TIME-WAIT"

// lateAnswer explains NO_SOCKET for a SYN-ACK.
const lateAnswer = "it answers a connection attempt that has ended in the meantime"

const synAck = 0x12

const noCookie = "the listener's queue is full (TcpExtListenOverflows), or no SYN cookie belongs to the acknowledgement"

// special are reasons that a function uses with a meaning of its own.
var special = map[[2]string]string{
	{"IP_INHDR", "ip_forward"}:  "the TTL expired on the way",
	{"IP_INHDR", "ip6_forward"}: "the hop limit expired on the way",

	// The only drops in these functions for which Linux 6.12 has no reason.
	{"NOT_SPECIFIED", "tcp_v4_rcv"}: noConnection,
	{"NOT_SPECIFIED", "tcp_v6_rcv"}: noConnection,

	{"NETFILTER_DROP", "nf_conntrack_in"}: "the table of connection tracking (conntrack) is full; raise net.netfilter.nf_conntrack_max",

	// With SYN cookies, a full queue of the listener looks like an unknown connection.
	{"NO_SOCKET", "cookie_v4_check"}: noCookie,
	{"NO_SOCKET", "cookie_v6_check"}: noCookie,
}

var meanings = map[string]string{
	"NOT_SPECIFIED":     "the kernel gives no reason; see the function",
	"NO_SOCKET":         "no socket has this port",
	"LISTEN_OVERFLOW":   "the listener's queue is full: the program accepts too slowly, or its backlog is too small",
	"SOCKET_CLOSE":      "the socket is being closed",
	"SOCKET_FILTER":     "a filter on the socket (SO_ATTACH_FILTER) rejected it",
	"SOCKET_RCVBUFF":    "the receive buffer is full: the program reads too slowly, or SO_RCVBUF is too small",
	"PACKET_SOCK_ERROR": "a packet socket, such as that of a capture, had no room for its copy; the packet itself went on",
	"SOCKET_BACKLOG":    "the socket's backlog is full: the program is too slow",
	"PROTO_MEM":         "the protocol's memory limit is reached (net.ipv4.tcp_mem, udp_mem)",
	"NOMEM":             "the stack has no memory left (--mem)",
	"PKT_TOO_SMALL":     "the packet is shorter than its headers",
	"HDR_TRUNC":         "the packet is shorter than its headers",
	"TCP_CSUM":          "the TCP checksum is wrong",
	"UDP_CSUM":          "the UDP checksum is wrong",
	"ICMP_CSUM":         "the ICMP checksum is wrong",
	"IP_CSUM":           "the checksum of the IP header is wrong",
	"SKB_CSUM":          "the checksum could not be computed",
	"IP_INHDR":          "the IP header is invalid",
	"NETFILTER_DROP":    "a netfilter rule (nftables, iptables) dropped it",
	"NETFILTER_REJECT":  "a netfilter rule (nftables, iptables) rejected the connection",
	OtherHost:           "the frame is for another machine's MAC address, so nothing is lost; at most one a second is listed",
	"IP_RPFILTER":       "the reverse path filter (net.ipv4.conf.*.rp_filter) rejected the source address",
	"IP_NOPROTO":        "no handler for this IP protocol",
	"IP_INADDRERRORS":   "the destination is not an address of this host, and forwarding is off",
	"IP_INNOROUTES":     "no route back to the source, or to the destination",
	"IP_OUTNOROUTES":    "no route to the destination",
	"PKT_TOO_BIG":       "the packet is larger than the MTU of the next link",
	"IPV6DISABLED":      "IPv6 is disabled on the interface",
	"UNHANDLED_PROTO":   "no handler for this Ethernet protocol",
	"INVALID_PROTO":     "the protocol is invalid",

	"NEIGH_CREATEFAIL": "the neighbour entry could not be created (net.ipv4.neigh.default.gc_thresh3)",
	"NEIGH_FAILED":     "the next hop does not answer ARP or neighbour discovery",
	"NEIGH_QUEUEFULL":  "too many packets wait for the next hop's MAC address",
	"NEIGH_DEAD":       "the neighbour entry was deleted",

	"QDISC_DROP":         "the queueing discipline dropped it: its queue is full, or it simulates loss",
	"FQ_BAND_LIMIT":      "the queue of fq is full",
	"FQ_HORIZON_LIMIT":   "the packet's send time is beyond the horizon of fq",
	"FQ_FLOW_LIMIT":      "the flow's queue of fq is full",
	"CPU_BACKLOG":        "the input queue is full (net.core.netdev_max_backlog)",
	"TC_EGRESS":          "a tc filter dropped it before sending",
	"TC_INGRESS":         "a tc filter dropped it after receiving",
	"XDP":                "an XDP program dropped it",
	"BPF_CGROUP_EGRESS":  "a BPF program of the control group dropped it",
	"DEV_READY":          "the interface is down",
	"DEV_HDR":            "the link header could not be written",
	"FULL_RING":          "the interface's ring is full",
	"QUEUE_PURGE":        "a queue was emptied with packets in it, such as that of a socket which the program closed without reading",
	"MAC_INVALID_SOURCE": "the source MAC address is invalid",

	"TCP_FLAGS":                "the TCP flags are invalid in this state",
	"TCP_ZEROWINDOW":           "the receive window is zero: the program does not read",
	"TCP_OVERWINDOW":           "the data is beyond the receive window",
	"TCP_OLD_DATA":             "the data was received before: a duplicate, or a retransmission that was not needed",
	"TCP_OFOMERGE":             "the data is already in the out-of-order queue",
	"TCP_OFO_QUEUE_PRUNE":      "the out-of-order queue was emptied, because memory is low",
	"TCP_OFO_DROP":             "no memory for out-of-order data",
	"TCP_RFC7323_PAWS":         "the TCP timestamp is older than the last one (PAWS, RFC 7323)",
	"TCP_OLD_SEQUENCE":         "the sequence number is before the window: a duplicate",
	"TCP_INVALID_SEQUENCE":     "the sequence number is outside the window",
	"TCP_INVALID_ACK_SEQUENCE": "the acknowledgement number is invalid",
	"TCP_OLD_ACK":              "the acknowledgement is old",
	"TCP_TOO_OLD_ACK":          "the acknowledgement is too old",
	"TCP_ACK_UNSENT_DATA":      "it acknowledges data that was never sent",
	"TCP_RESET":                "the connection was reset by the peer",
	"TCP_INVALID_SYN":          "a SYN arrived on an established connection",
	"INVALID_SYN":              "a SYN arrived on an established connection",
	"TCP_CLOSE":                "the connection is closed",
	"TCP_MINTTL":               "the TTL is below IP_MINTTL of the socket",
	"TCP_FASTOPEN":             "TCP Fast Open refused the data",
	"TCP_MD5NOTFOUND":          "the TCP MD5 signature is missing",
	"TCP_MD5UNEXPECTED":        "a TCP MD5 signature was not expected",
	"TCP_MD5FAILURE":           "the TCP MD5 signature is wrong",

	"DUP_FRAG":           "a duplicate IP fragment",
	"FRAG_REASM_TIMEOUT": "the other fragments of the packet did not arrive in time",
	"FRAG_TOO_FAR":       "too many fragments of other packets came in between",

	"TCP_ABORT_ON_DATA":        "data arrived after the program had closed the socket",
	"TCP_ABORT_ON_CLOSE":       "the program closed the socket with unread data",
	"TCP_ABORT_ON_LINGER":      "the peer did not end the connection within TCP_LINGER2",
	"TCP_ABORT_ON_MEMORY":      "too many orphaned sockets, or no memory for them",
	"TCP_STATE":                "the program aborted the connection (SO_LINGER 0, unread data at close), or lklctl kill did",
	"TCP_KEEPALIVE_TIMEOUT":    "the peer did not answer keepalive probes",
	"TCP_DISCONNECT_WITH_DATA": "the program disconnected the socket with unsent data",
	"TCP_TIMEWAIT_SOCKET":      "the connection is in TIME-WAIT",
	"PEER":                     "the peer sent the reset",
	"SYN":                      "the peer has not answered the SYN",
	"SYN_ACK":                  "the peer has not acknowledged the SYN-ACK",
	"TIMEOUT":                  "no acknowledgement arrived within the retransmission timeout",
	"ZERO_WINDOW":              "the peer's receive window is zero; the segment asks whether it has opened",
	"FAST":                     "the peer acknowledged later data (fast retransmission)",
	"LOSS_PROBE":               "the last segments were not acknowledged in time (tail loss probe)",
	"ERROR":                    "an error in the kernel",
	"MPTCP_RST_EUNSPEC":        "MPTCP: no specific reason",
	"MPTCP_RST_EMPTCP":         "MPTCP: the peer broke the protocol, or the token is unknown",
	"MPTCP_RST_ERESOURCE":      "MPTCP: too few resources",
	"MPTCP_RST_EPROHIBIT":      "MPTCP: not permitted by policy or limits (ip mptcp limits)",
	"MPTCP_RST_EWQ2BIG":        "MPTCP: too much data waits for an acknowledgement",
	"MPTCP_RST_EBADPERF":       "MPTCP: the path performs badly",
	"MPTCP_RST_EMIDDLEBOX":     "MPTCP: a middlebox changes the packets",
}
