// SPDX-License-Identifier: Apache-2.0

// Package testutil gives tests a machine of their own: Main puts a test binary
// into fresh network, process and mount namespaces, in which it wires further
// namespaces together, starts real peers (nginx, dnsmasq, iperf3) and compares
// what was there before a run with what is there after it.
//
// Whatever a test forgets, and whatever a killed test could not tidy up, ends
// with these namespaces; nothing reaches the machine's own network.
package testutil
