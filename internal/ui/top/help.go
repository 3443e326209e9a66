// SPDX-License-Identifier: Apache-2.0

package top

// helpText is the help screen (F1).
var helpText = []string{
	"Tab, Right          the next instance; Shift-Tab, Left: the one before",
	"Up Down PgUp PgDn   select a connection or subflow; Home, End",
	"l, Enter            all that the stack tells of it",
	"F3, /               search a connection: process, pid, address, token;",
	"                    F3, or n later: the next one",
	"F4, \\               show only connections that have a word; Esc: all again",
	"F5, t               with or without subflows",
	"F6, >, <            sort by another column; I: the other way round",
	"F9, k               end the selected connection or subflow, after a question",
	"+, -                look oftener, less often",
	"Z                   hold the picture",
	"F10, q, Ctrl-C      quit; Ctrl-Z: suspend",
	"",
	"STACK%, PROG%       CPU of the stack's process and of the program, 100% is",
	"                    one core; with the engine preload the stack is in PROG%",
	"SENT, RECV          bits a second; GRAPH: both together, the latest at right,",
	"                    all graphs of a table drawn to one scale",
	"RETR/s, RETR        TCP segments sent again: a second; in the socket's life",
	"DROP                packets that the interface dropped",
	"CWND                congestion window, in segments",
	"KIND                plain: it was to be MPTCP, but the peer or path has none;",
	"                    backup: the subflow is for when no other carries",
	"-                   not known; a rate needs two looks",
}
