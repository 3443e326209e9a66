// SPDX-License-Identifier: Apache-2.0

// Package kit gives tests an isolated machine: Main moves a test binary into fresh
// network, process and mount namespaces. Other functions connect further namespaces,
// start real peers (nginx, dnsmasq, iperf3), and compare the state before and after a
// run.
//
// End-to-end tests (test/README.md) use EndToEnd, which builds their programs and calls
// Main. A Site has one wire to a server, and a PathSite has two paths. Lklrun and Lklctl
// are the programs under test, and a Talker is a target that opens connections when the
// test says so.
//
// Everything that a test leaves behind, even if it is killed, ends with these namespaces.
// Nothing reaches the machine's own network.
package kit
