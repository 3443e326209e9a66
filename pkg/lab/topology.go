// SPDX-License-Identifier: Apache-2.0

// Package lab builds networks of several Linux stacks on one machine, without
// root and without changes to the host. A lab consists of nodes, each an instance
// of lklrun with a kernel of its own, and of wires between them, which can have
// delay, a rate, loss and more.
//
// A Topology describes a lab. Parse reads one from a file of JSON with comments;
// Paths describes the most common shape: a client and a server, with one or more
// paths between them. Plan assigns addresses, routes and names, and has no side
// effects. Up starts a lab:
//
//	l, err := lab.Up(ctx, lab.Paths(2, lab.Wire{Delay: "20ms", Loss: "1%"}), nil)
//	if err != nil { ... }
//	defer l.Down(context.Background())
//	out, err := l.Command(ctx, "client", "curl", "-s", "http://server/").Output()
//
// The lab ends with Down, or when the process that called Up ends, however it
// ends. The package runs the programs lklrun and lklctl.
package lab

import "time"

// Topology describes a lab.
type Topology struct {
	Schema string            `json:"$schema,omitempty" doc:"address of this schema, for editors"`
	Vars   map[string]string `json:"vars,omitempty" doc:"variables, by name, with their values; ${NAME} in a string of the file stands for the value"`
	Name   string            `json:"name,omitempty" doc:"name of the lab, with which the names of its instances begin (default: the name of the file)"`
	Stack  string            `json:"stack,omitempty" doc:"stack of the nodes (default: mptcp)"`
	Mem    string            `json:"mem,omitempty" doc:"memory of each node, such as 64M (default: the stack's)"`
	Seed   int               `json:"seed,omitempty" doc:"seed of the random decisions of all wires, so that a run can be repeated"`
	Sysctl map[string]string `json:"sysctl,omitempty" doc:"settings of the kernels of all nodes"`
	Wires  map[string]Wire   `json:"wires,omitempty" doc:"the wires, by name; a wire without settings need not be listed"`
	Nodes  map[string]Node   `json:"nodes" doc:"the nodes, by name"`
	Steps  []Step            `json:"steps,omitempty" doc:"the steps of lklrun lab run, in order"`
}

// Wire is a network segment that joins two or more nodes. Its settings apply to
// the packets that each end receives, so a delay applies to both directions. The
// values have the form that the interface type wire of lklrun has.
type Wire struct {
	Network   List   `json:"network,omitempty" doc:"prefix of the addresses; one of IPv4, one of IPv6, or both (default: 10.0.1.0/24, 10.0.2.0/24 and so on)"`
	MTU       int    `json:"mtu,omitempty" doc:"MTU in bytes (default 1500)"`
	Delay     string `json:"delay,omitempty" doc:"delay of each packet in each direction, such as 20ms"`
	Jitter    string `json:"jitter,omitempty" doc:"random change of the delay, such as 5ms"`
	Rate      string `json:"rate,omitempty" doc:"rate in each direction, such as 100mbit"`
	Limit     int    `json:"limit,omitempty" doc:"number of packets that wait for delay and rate (default: enough for both)"`
	Loss      string `json:"loss,omitempty" doc:"probability that a packet is lost, such as 1%"`
	Duplicate string `json:"duplicate,omitempty" doc:"probability that a packet is sent twice, such as 1%"`
	Reorder   string `json:"reorder,omitempty" doc:"probability that a packet is sent without its delay, such as 1%"`
	Seed      int    `json:"seed,omitempty" doc:"seed of the random decisions of this wire"`
}

// Node is an instance of lklrun.
type Node struct {
	Stack  string            `json:"stack,omitempty" doc:"stack of this node (default: that of the lab)"`
	Mem    string            `json:"mem,omitempty" doc:"memory of this node (default: that of the lab)"`
	Wires  []End             `json:"wires" doc:"the wires at the node's interfaces eth0, eth1 and so on"`
	Router bool              `json:"router,omitempty" doc:"forward packets between the wires"`
	Server bool              `json:"server,omitempty" doc:"wait until the program listens on a port, and announce all addresses of the node to MPTCP clients"`
	Sysctl map[string]string `json:"sysctl,omitempty" doc:"settings of the node's kernel"`
	Run    Command           `json:"run,omitempty" doc:"program to start in the background, as an array of words or as a line for sh"`
	Report map[string]string `json:"report,omitempty" doc:"results that are counters of the node's kernel after the last step, such as \"resent\": \"TcpRetransSegs\""`
}

// End is the interface of a node at a wire. In a file, the name of the wire is
// sufficient.
type End struct {
	Wire    string `json:"wire" doc:"name of the wire"`
	IP      List   `json:"ip,omitempty" doc:"address of the node in the network of the wire (default: the next free one)"`
	Options string `json:"options,omitempty" doc:"further keys of the interface in the form of --if, such as qdisc=fq,backup; they override those of the wire for the packets that this end receives"`
	NAT     string `json:"nat,omitempty" doc:"translate the IPv4 addresses behind the other wires of this router to the one at this wire: full-cone, restricted, port-restricted or symmetric; requires nft"`
	Hairpin bool   `json:"hairpin,omitempty" doc:"the NAT also forwards packets from inside to its address at this wire"`
}

// Ends returns ends without options at the wires of these names.
func Ends(wires ...string) []End {
	all := make([]End, len(wires))
	for n, w := range wires {
		all[n].Wire = w
	}
	return all
}

// List is a list of words. In a file, one word is sufficient.
type List []string

// Command is a program with its arguments. In a file, a string is a line for sh.
type Command []string

// Step is a step of Run. It runs a program on a node, changes a wire, or waits.
type Step struct {
	On         string  `json:"on,omitempty" doc:"node that runs the program"`
	Run        Command `json:"run,omitempty" doc:"program to run, as an array of words or as a line for sh"`
	Expect     int     `json:"expect,omitempty" doc:"expected exit status (default 0)"`
	Timeout    string  `json:"timeout,omitempty" doc:"limit for the step, such as 30s (default 1m0s)"`
	Retry      bool    `json:"retry,omitempty" doc:"repeat the program until it has the expected status"`
	Background bool    `json:"background,omitempty" doc:"continue with the next step; the program must end before the lab does"`
	Report     List    `json:"report,omitempty" doc:"names of results; the program prints a line NAME=VALUE for each"`

	Wire string `json:"wire,omitempty" doc:"wire to change"`
	Set  string `json:"set,omitempty" doc:"change in the form of lklctl path, such as down, up, loss 5% or delay 40ms"`

	Wait string `json:"wait,omitempty" doc:"time to wait, such as 2s"`
}

// Limits of a lab.
const (
	MaxNodes       = 64  // in real time
	maxVirtual     = 512 // nodes in virtual time
	MaxPaths       = 8   // of Shape
	MaxRouters     = 62  // of Shape
	maxName        = 15  // of a lab and a node, which form the name of an instance
	defaultTimeout = time.Minute
)
