// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strconv"
)

// Shape describes a lab of the nodes client and server with one or more paths
// between them. With routers, each path is a chain of its own.
type Shape struct {
	Paths       int  // number of paths; 0: 1
	Routers     int  // number of routers on each path
	Wire        Wire // settings of each wire
	Stack       string
	ServerStack string // empty: Stack
	Server      Command
}

// Paths returns the topology of a client and a server with n paths between them,
// which are the wires a, b and so on.
func Paths(n int, w Wire) *Topology {
	return Shape{Paths: n, Wire: w}.Topology()
}

// Topology returns the topology. The wires are a, b and so on; with routers, they
// are a1, a2 and so on, from the client to the server, and the routers are ra1,
// ra2 and so on, or r1, r2 and so on if there is one path.
func (s Shape) Topology() *Topology {
	t := &Topology{Stack: s.Stack, Wires: map[string]Wire{}, Nodes: map[string]Node{}}
	t.Seed, s.Wire.Seed = s.Wire.Seed, 0 // otherwise all paths would lose the same packets
	client := Node{}
	server := Node{Stack: s.ServerStack, Run: s.Server, Server: len(s.Server) > 0}
	for n := range max(s.Paths, 1) {
		path := string(rune('a' + n%26))
		if s.Routers == 0 {
			t.Wires[path] = s.Wire
			client.Wires = append(client.Wires, End{Wire: path})
			server.Wires = append(server.Wires, End{Wire: path})
			continue
		}
		wire := func(k int) string { return path + strconv.Itoa(k) }
		for k := range s.Routers + 1 {
			t.Wires[wire(k+1)] = s.Wire
		}
		for k := range s.Routers {
			name := fmt.Sprintf("r%s%d", path, k+1)
			if s.Paths < 2 {
				name = fmt.Sprintf("r%d", k+1)
			}
			t.Nodes[name] = Node{Router: true, Wires: Ends(wire(k+1), wire(k+2))}
		}
		client.Wires = append(client.Wires, End{Wire: wire(1)})
		server.Wires = append(server.Wires, End{Wire: wire(s.Routers + 1)})
	}
	t.Nodes["client"], t.Nodes["server"] = client, server
	return t
}
