// SPDX-License-Identifier: Apache-2.0

package top

// helpText is the help screen (F1).
var helpText = []string{
	"Tab, Right          next instance; Shift-Tab, Left: previous instance",
	"Up Down PgUp PgDn   select a connection or subflow; also Home, End",
	"l, Enter            show all values of the selected connection or subflow",
	"F3, /               search by process, pid, address or token;",
	"                    F3, or n later: next match",
	"F4, \\               show only connections that contain a word; Esc: all",
	"F5, t               show or hide subflows",
	"F6, >, <            sort by another column; I: reverse the order",
	"F9, k               end the selected connection or subflow (asks first)",
	"+, -                refresh more often, less often",
	"Z                   freeze the display",
	"F10, q, Ctrl-C      quit; Ctrl-Z: suspend",
	"",
	"STACK%, PROG%       CPU of the stack and of the program, 100% is one core;",
	"                    with the engine preload, PROG% includes the stack",
	"SENT, RECV          bits per second",
	"GRAPH               both together, latest at the right; one scale per table",
	"RETR/s, RETR        retransmitted TCP segments: per second; in total",
	"DROP                packets that the interface dropped; the line above the",
	"                    interfaces counts those of the whole stack, and resets",
	"CWND                congestion window, in segments",
	"KIND                plain: plain TCP, as the peer or the path has no MPTCP;",
	"                    backup: a subflow that is used only if no other works",
	"-                   not known; a rate needs two samples",
}
