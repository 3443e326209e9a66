// SPDX-License-Identifier: Apache-2.0

// Package kit gives tests an isolated machine: Main moves a test binary into fresh
// network, process and mount namespaces. There it connects further namespaces, starts
// real peers (nginx, dnsmasq, iperf3), and compares the state before and after a run.
//
// For end-to-end tests (test/README.md), EndToEnd is Main with their programs. A Site has
// one wire and a PathSite two paths to a server. Lklrun and Lklctl are the programs under
// test, and a Talker is a target that opens connections when the test says so.
//
// Everything that a test leaves behind, even if it is killed, ends with these namespaces.
// Nothing reaches the machine's own network.
package kit
