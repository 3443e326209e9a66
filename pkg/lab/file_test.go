// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full contains every key, in all forms that the reader accepts.
const full = `// comments,
{
  /* of both kinds, and trailing commas */
  "$schema": "lab.schema.json", "vars": {"stack": "vanilla", "seed": 7, "x": "./x y"}, "name": "full", "stack": "${stack}", "mem": "64M", "seed": "${seed}",
  "sysctl": {"net.ipv4.tcp_congestion_control": "bbr", "net.ipv4.tcp_ecn": 1},
  "wires": {
    "a": {"delay": "20ms", "jitter": "1ms", "rate": "100mbit", "limit": 1000, "loss": "1%", "duplicate": "1%", "reorder": "1%", "seed": 3, "mtu": 1400},
    "b": {"network": ["192.0.2.0/24", "fd00:2::/64"]},
    "c": {"network": "198.51.100.0/24"},
  },
  "nodes": {
    "client": {"wires": ["a", {"wire": "b", "ip": ["192.0.2.9", "fd00:2::9"], "options": "backup,qdisc=fq"}]},
    "r": {"router": true, "mem": "32M", "wires": ["a", "b", "c"]},
    "server": {"stack": "bbr", "server": true, "wires": [{"wire": "c", "ip": "198.51.100.7"}], "run": ["iperf3", "-s"], "sysctl": {"net.ipv4.tcp_ecn": 2}, "report": {"resent": "TcpRetransSegs"}},
  },
  "steps": [
    {"on": "client", "run": "iperf3 -c server", "expect": 1, "timeout": "30s", "retry": true},
    {"on": "client", "run": "exec ${x} ${HOME} ${stack}", "report": "rate"},
    {"on": "client", "run": ["ping", "-c1", "server"], "background": true},
    {"wire": "a", "set": "down"},
    {"wait": "1s"},
  ],
}`

// pair is the smallest lab.
const pair = `{"nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}}}`

func TestParse(t *testing.T) {
	got, err := Parse("dir/f.json", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &Topology{
		Schema: "lab.schema.json", Vars: map[string]string{"stack": "vanilla", "seed": "7", "x": "./x y"}, Name: "full", Stack: "vanilla", Mem: "64M", Seed: 7,
		Sysctl: map[string]string{"net.ipv4.tcp_congestion_control": "bbr", "net.ipv4.tcp_ecn": "1"},
		Wires: map[string]Wire{
			"a": {Delay: "20ms", Jitter: "1ms", Rate: "100mbit", Limit: 1000, Loss: "1%", Duplicate: "1%", Reorder: "1%", Seed: 3, MTU: 1400},
			"b": {Network: List{"192.0.2.0/24", "fd00:2::/64"}},
			"c": {Network: List{"198.51.100.0/24"}},
		},
		Nodes: map[string]Node{
			"client": {Wires: []End{{Wire: "a"}, {Wire: "b", IP: List{"192.0.2.9", "fd00:2::9"}, Options: "backup,qdisc=fq"}}},
			"r":      {Router: true, Mem: "32M", Wires: Ends("a", "b", "c")},
			"server": {
				Stack: "bbr", Server: true, Wires: []End{{Wire: "c", IP: List{"198.51.100.7"}}}, Run: Command{"iperf3", "-s"},
				Sysctl: map[string]string{"net.ipv4.tcp_ecn": "2"}, Report: map[string]string{"resent": "TcpRetransSegs"},
			},
		},
		Steps: []Step{
			{On: "client", Run: Command{"sh", "-c", "iperf3 -c server"}, Expect: 1, Timeout: "30s", Retry: true},
			{On: "client", Run: Command{"sh", "-c", "exec ./x y ${HOME} vanilla"}, Report: List{"rate"}},
			{On: "client", Run: Command{"ping", "-c1", "server"}, Background: true},
			{Wire: "a", Set: "down"},
			{Wait: "1s"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The name of a lab is that of its file.
func TestName(t *testing.T) {
	for file, want := range map[string]string{
		"two-paths.json": "two-paths", "/x/My Lab.v2.jsonc": "mylab", "...": "lab", "a-very-long-name-of-a-file": "a-very-long-nam", "-x-.json": "x",
	} {
		l, err := Parse(file, []byte(pair))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		} else if l.Name != want {
			t.Errorf("%s: %s", file, l.Name)
		}
	}
}

// Each error names the file, the line, the path and the remedy.
func TestParseErrors(t *testing.T) {
	node := func(client string) string {
		return "{\"nodes\": {\n\"client\": {" + client + "},\n\"server\": {\"wires\": [\"a\"]}}}"
	}
	for text, want := range map[string]string{
		`[]`:                     `f.json:1: an array; expected an object such as {"nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}}}`,
		`{`:                      `f.json:1:2: parsing value: unexpected EOF`,
		`{"nodes": {}}`:          `f.json:1: nodes: the lab has no nodes; add at least two`,
		"{\n\"node\": {}}":       `f.json:2: node: unknown key; did you mean nodes?`,
		"{\n\"x\": {}}":          `f.json:2: x: unknown key; expected one of $schema, vars, name, stack, mem, seed, sysctl, wires, nodes, steps`,
		`{"seed": 1, "seed": 2}`: `f.json:1: seed: given twice, first at f.json:1; remove one`,
		"{\"nodes\": {\n\"client\": {\"wires\": [\"b\"]},\n\"s\": {\"wires\": [\"c\"]}, \"t\": {\"wires\": [\"c\"]}}}": `f.json:2: nodes.client.wires[0]: no other node is at wire "b"; add this wire to another node`,
		`{"nodes": {"x": {"wires": ["path1"]}, "y": {"wires": ["path1"]}, "z": {"wires": ["pth1"]}}}`:                  `f.json:1: nodes.z.wires[0]: no other node is at wire "pth1"; did you mean path1?`,
		node(`"wires": []`):                                                 `f.json:2: nodes.client.wires: an empty list; remove it or add a value`,
		node(`"router": true`):                                              `f.json:2: nodes.client.wires: the node has no wire; add one, such as "wires": ["a"]`,
		node(`"wires": ["a", "a"]`):                                         `f.json:2: nodes.client.wires[1]: client is already at this wire with eth0`,
		node(`"wires": "a"`):                                                `f.json:2: nodes.client.wires: "a"; expected an array`,
		node(`"wires": [1]`):                                                `f.json:2: nodes.client.wires[0]: 1; expected the name of a wire, or an object such as {"wire": "a", "ip": "10.0.1.7"}`,
		node(`"wires": ["A"]`):                                              `f.json:2: nodes.client.wires[0]: "A" is not the name of a wire; expected lower-case letters, digits and '-'`,
		node(`"wires": ["a"], "server": true`):                              `f.json:2: nodes.client.server: the node has no program; add "run"`,
		node(`"wires": ["a"], "stack": "host"`):                             `f.json:2: nodes.client.stack: a node cannot use the host's kernel; choose another stack, such as vanilla`,
		node(`"wires": ["a"], "report": {"a b": "TcpRetransSegs"}`):         `f.json:2: nodes.client.report."a b": "a b" is not a name; expected letters, digits, '-' and '_'`,
		node(`"wires": ["a"], "run": 5`):                                    `f.json:2: nodes.client.run: 5; expected an array of words such as ["iperf3", "-s"], or a line for sh`,
		node(`"wires": ["a"], "mem": "1"`):                                  `f.json:2: nodes.client.mem: "1"; expected a size from 32M to 1024G`,
		node(`"wires": ["a"], "sysctl": {"a b": 1}`):                        `f.json:2: nodes.client.sysctl."a b": "a b" is not a sysctl name`,
		node(`"wires": [{"wire": "a", "ip": "10.9.0.1"}]`):                  `f.json:2: nodes.client.wires[0].ip: 10.9.0.1 is not the address of a node in 10.0.1.0/24, the network of wire "a"; set the wire's "network"`,
		node(`"wires": [{"wire": "a", "ip": "10.0.1.1/24"}]`):               `f.json:2: nodes.client.wires[0].ip: "10.0.1.1/24"; expected an address without its prefix length, such as 10.0.1.7`,
		node(`"wires": [{"wire": "a", "ip": ["10.0.1.1", "10.0.1.2"]}]`):    `f.json:2: nodes.client.wires[0].ip: 10.0.1.2 is the second address of its family; remove one`,
		node(`"wires": [{"wire": "a", "options": "ip=1"}]`):                 `f.json:2: nodes.client.wires[0].options: ip=1: use "ip" for the address of the node`,
		node(`"wires": [{"wire": "a", "nat": "symetric"}], "router": true`): `f.json:2: nodes.client.wires[0].nat: "symetric"; did you mean symmetric?`,
		node(`"wires": [{"wire": "a", "nat": "symmetric"}]`):                `f.json:2: nodes.client.wires[0].nat: only a router translates addresses; add "router": true to the node`,
		node(`"wires": [{"wire": "a", "hairpin": true}], "router": true`):   `f.json:2: nodes.client.wires[0].hairpin: only a NAT has hairpins; add "nat"`,
		"{\"wires\": {\n\"a\": {\"network\": \"10.0.1.1/24\"}}," + pair[1:]: `f.json:2: wires.a.network: 10.0.1.1/24 has bits set after the prefix; expected 10.0.1.0/24`,
		"{\"wires\": {\n\"a\": {\"network\": \"10.0.1.0/31\"}}, \"nodes\": {\"x\": {\"wires\": [\"a\"]}, \"y\": {\"wires\": [\"a\"]}, \"z\": {\"wires\": [\"a\"]}}}": `f.json:2: wires.a.network: 10.0.1.0/31 has only 2 addresses for 3 nodes`,
		"{\"wires\": {\n\"b\": {}}," + pair[1:]:                                                                  `f.json:2: wires.b: no node is at this wire; remove it, or add it to nodes`,
		"{\"wires\": {\n\"a\": {\"dely\": \"1ms\"}}," + pair[1:]:                                                 `f.json:2: wires.a.dely: unknown key; did you mean delay?`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"on\": \"clint\", \"run\": \"x\"}]}":                              `f.json:2: steps[0].on: the lab has no node "clint"; did you mean client?`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"on\": \"client\"}]}":                                             `f.json:2: steps[0]: a program requires both "on" and "run"`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"wire\": \"b\", \"set\": \"down\"}]}":                             `f.json:2: steps[0].wire: the lab has no wire "b"; it has a`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"wait\": \"5s\", \"report\": \"x\"}]}":                            `f.json:2: steps[0].report: only a program reports results; add "on" and "run"`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"on\": \"client\", \"run\": \"x\", \"report\": [\"x\", \"x\"]}]}": `f.json:2: steps[0].report[1]: "x" is also the name of a result in steps[0].report[0]; rename one`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"on\": \"client\", \"run\": \"x\", \"report\": \"x y\"}]}":        `f.json:2: steps[0].report[0]: "x y" is not a name; expected letters, digits, '-' and '_'`,
		pair[:len(pair)-1] + ",\n\"steps\": [{}]}":                                                               `f.json:2: steps[0]: expected "on" and "run", "wire" and "set", or "wait"`,
		pair[:len(pair)-1] + ",\n\"steps\": [{\"wait\": \"5\"}]}":                                                `f.json:2: steps[0].wait: "5"; expected a time such as 30s`,
	} {
		_, err := Parse("f.json", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
		if te := (*TopologyError)(nil); err != nil && !errors.As(err, &te) && !strings.Contains(want, "EOF") {
			t.Errorf("%T", err)
		}
	}
	for _, text := range []string{"\xff", strings.Repeat("[", 100), strings.Repeat(" ", maxFile+1)} {
		if _, err := Parse("f.json", []byte(text)); err == nil {
			t.Errorf("no error for %.20q", text)
		}
	}
}

// TestVars checks values of variables that the caller gives, and errors about variables.
func TestVars(t *testing.T) {
	const text = `{
"vars": {"stack": "vanilla", "loss": "1%"},
"stack": "${stack}", "wires": {"a": {"loss": "${loss}"}},
"nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": "${dir}/x ${HOME}"}}}`
	got, err := Vars{"loss": "3%"}.Parse("/f/f.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got.Stack != "vanilla" || got.Wires["a"].Loss != "3%" || got.Nodes["server"].Run[2] != "/f/x ${HOME}" || got.Vars["loss"] != "3%" {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		vars      Vars
		old, new  string
		wantError string
	}{
		{Vars{"los": "3%"}, "", "", `f.json:2: vars: no variable "los"; did you mean loss?`},
		{Vars{"loss": "3 elephants"}, "", "", `f.json:3: wires.a.loss: "3 elephants"; `},
		{nil, `"${stack}"`, `"${stak}"`, `f.json:3: stack: no variable "stak"; did you mean stack?`},
		{nil, `"${stack}"`, `"vanilla"`, `f.json:2: vars.stack: nothing uses this variable; add ${stack} to a string, or remove it`},
		{nil, `"stack": "vanilla"`, `"stack": "vanilla", "a b": "c"`, `f.json:2: vars."a b": "a b" is not a name; `},
		{nil, `"stack": "vanilla"`, `"stack": "vanilla", "dir": "c"`, `f.json:2: vars.dir: this variable is always the folder of the file; `},
		{nil, `"stack": "vanilla"`, `"stack": {}`, `f.json:2: vars.stack: an object; expected a string`},
		{Vars{"loss": "3%"}, "\"vars\": {\"stack\": \"vanilla\", \"loss\": \"1%\"},", "", `f.json: vars: no variable "loss"; the file has none; add "vars"`},
	} {
		_, err := c.vars.Parse("f.json", []byte(strings.Replace(text, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), c.wantError) {
			t.Errorf("%v, %s for %s: %v; expected %s", c.vars, c.new, c.old, err, c.wantError)
		}
	}
}

// TestReported finds results in the output of a program.
func TestReported(t *testing.T) {
	got, err := reported("rate=1\nother=2\n rate=3 MB/s \npause=", []string{"rate"})
	if err != nil || got["rate"] != "3 MB/s" || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := reported("rate=1\npause=\n", []string{"rate", "pause"}); err == nil || !strings.Contains(err.Error(), "no line pause=VALUE") {
		t.Errorf("%v", err)
	}
}

// Any text leads to a topology with a plan or to an error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{full, pair, diamond, `{"nodes": null}`, `{"nodes": {"a": null}}`, `{"seed": 1e9}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse("f", []byte(text))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: an error of several lines: %q", text, err)
			}
			return
		}
		if _, err := l.Plan(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
