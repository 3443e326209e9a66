// SPDX-License-Identifier: Apache-2.0

// Package testutil gives tests an isolated machine: Main moves a test binary into fresh
// network, process and mount namespaces. There it connects further namespaces, starts
// real peers (nginx, dnsmasq, iperf3), and compares the state before and after a run.
//
// Everything that a test leaves behind, even if it is killed, ends with these namespaces.
// Nothing reaches the machine's own network.
package testutil
