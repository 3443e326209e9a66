// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/pkg/config"
)

// topics are the pages of `lklrun help TOPIC`, in the order of the list of topics.
// Each topic is also a manual page, lklrun-NAME(7).
var topics = []cli.Topic{
	{Name: "interfaces", Short: "types and keys of --if", Make: func() string { return interfacesTopic + config.InterfaceHelp() + interfacesRest }},
	{Name: "servers", Short: "let others reach the program: --publish, --listen", Text: serversTopic},
	{Name: "shared-addresses", Short: "use the host's own address: raw, rawip, --rst-guard", Text: sharedTopic},
	{Name: "host-net", Short: "use the host's stack for some destinations", Text: hostNetTopic},
	{Name: "engines", Short: "how the program's socket calls are intercepted", Text: enginesTopic},
	{Name: "background", Short: "daemons: --detach, --wait-all, --log", Text: backgroundTopic},
	{Name: "devices", Short: "run on a phone or another machine: --device", Text: devicesTopic},
	{Name: "captures", Short: "write packets to a file: --capture", Text: capturesTopic},
	{Name: "labs", Short: "topology files of lklrun lab", Text: labsTopic},
	{Name: "configuration", Short: "files, variables and profiles", Text: configurationTopic},
	{Name: "exit-status", Short: "what each exit status means; --require", Text: exitTopic},
}

const interfacesTopic = `--if adds an interface to the stack. Without --if, the stack has one interface
of type user. Interfaces become eth0, eth1, ... in the order given.

  --if TYPE[:ARG][,KEY[=VALUE]]...

Types and keys:

`

const interfacesRest = `
A key without a value means on. Each interface has a routing table of its own
(100, 101, ...). If the stack turns TCP into MPTCP, each interface is also an
MPTCP endpoint.

  lklrun --if tap:tap0,ip=192.0.2.2/24,gw=192.0.2.1 -- curl http://192.0.2.9/
  lklrun --if tap:tap0,nat -- curl http://example.com/
  lklrun --if raw:eth0 -- iperf3 -c 192.0.2.9
`

const serversTopic = `With an interface of type user, the program sits behind a gateway. --publish
makes one of its ports reachable on the host:

  --publish [ADDRESS:]HOSTPORT:PORT[/udp]

A connection to HOSTPORT of the host reaches PORT of the program. Without
ADDRESS, the host listens on 127.0.0.1 and ::1 only. Use 0.0.0.0 or [::] for
all addresses.

  lklrun --publish 8080:80 -- nginx -g 'daemon off;'
  lklrun --publish 0.0.0.0:5353:53/udp -- dnsmasq -d

With tap and macvtap, the stack has addresses of its own, so a server needs no
flag. With raw and rawip at the host's address, name the server's ports with
--listen; see "lklrun help shared-addresses".
`

const sharedTopic = `With raw and rawip and without ip=, the stack uses the host's own address. The
two kernels then divide the ports between them:

  --port-range PORTS   ports for the program's connections: how many (default
                       4096), or FIRST-LAST. They are reserved on the host
  --listen PORT        a port of a server in the program; repeatable

Packets to these ports are hidden from the host's kernel, which would answer
them with a RST. All other packets are the host's as before. --rst-guard
chooses how:

  auto        nft if the host has it, else iptables
  nft         rules in a table of nftables
  iptables    rules in iptables
  off         no rules
  print       print the rules and do nothing

The host cannot connect to such a server, and the program cannot connect to the
host at that address.

  sudo lklrun --if raw:eth0 -- curl http://example.com/
  sudo lklrun --if raw:eth0 --listen 8080 -- ./server
  sudo lklrun --if rawip:rmnet0 --rst-guard print -- true
`

const hostNetTopic = `Connections and datagrams to a destination of --host-net use the host's stack.
All others use the lklrun stack. Unix sockets always belong to the host.

  --host-net CIDR[:PORT]    such as 127.0.0.1:5432, [::1]:5432 or 10.0.0.0/8

-v reports how many connections used the host's stack. --require ignores them.

127.0.0.1 and ::1 belong to the lklrun stack. If a program connects there and
only the host has such a server, lklrun says so. With an interface of type user,
192.168.127.254 is the host's 127.0.0.1 too, without --host-net.

  lklrun --host-net 127.0.0.1:5432 -- ./app    # its database is on the host
`

const enginesTopic = `--engine selects how lklrun intercepts the program's socket calls:

  supervise   A process beside the program answers its socket calls (seccomp
              user notification). Works for any program and all its children.
  preload     The kernel is loaded into the program itself (LD_PRELOAD). Faster,
              but only for one dynamically linked program; programs that it
              starts have no network.
  trace       As supervise, with ptrace in place of seccomp user notification.
              For older kernels. Slower, and programs cannot use ptrace
              themselves (strace, gdb).
  auto        supervise if the host supports it, else preload if it can run
              the program, else trace (default).

"lklrun doctor COMMAND" reports which engines can run a command, and why.

  lklrun doctor ssh
  lklrun --engine preload -- iperf3 -c server
`

const backgroundTopic = `A run ends when the first process of the command ends. Remaining children are
killed.

  --wait-all   The run ends with the last process and has the exit status of the
               first. For daemons that fork into the background.
  --detach     Run in the background. lklrun prints the name of the run and
               exits with 0 as soon as the command has started.
  --log FILE   With --detach: the file for the program's output.

"lklctl stop" ends a run in the background. "lklctl wait" waits for its end and
exits with the status of the program. "lklctl logs" prints its output. A run
that has ended leaves its status and the end of its output: "lklctl list -a"
shows the last 20 such runs, "lklctl rm" deletes what they left.

  lklrun --detach --log redis.log -- redis-server
  lklctl logs -f redis-server
  lklctl stop redis-server
  lklctl wait redis-server
`

const devicesTopic = `--device runs COMMAND on another machine, on a stack there. COMMAND is a program
of that machine. Input, output, terminal, signals and exit status behave as if
it ran here.

  adb[:SERIAL]             an Android device; SERIAL if there are several
  all                      all Android devices that adb lists
  ssh:[USER@]HOST[:PORT]   a machine that ssh reaches

lklrun uploads its programs once, into one folder, and installs nothing else.
The run ends with this lklrun, or 10 seconds after the connection drops. With
--stay, the run goes on after this lklrun ends; "lklctl --device DEVICE stop"
ends it.

With several devices, each output line is prefixed with the device name; a
summary table follows. The exit status is that of the first device that did not
exit 0.

  lklrun --device adb --iface wlan0,rmnet0 -- /data/local/tmp/fetch
  lklrun doctor --device adb      # what the device can do
  lklrun cleanup --device adb     # remove lklrun from the device
`

const capturesTopic = `--capture writes the stack's packets to a pcapng file for Wireshark, starting
before the interfaces are configured:

  --capture FILE[,snap=BYTES][,if=NAME]...[,filter=EXPRESSION]
  --capture ring[,size=SIZE][,snap=BYTES][,if=NAME]...[,filter=EXPRESSION]

  snap=BYTES           keep the first BYTES of each packet (default: all)
  if=NAME              capture on this interface only; repeatable
  filter=EXPRESSION    keep what the pcap-filter(7) EXPRESSION matches

A slow or full disk loses packets; it never delays the run. "ring" keeps the
last packets in memory (default 1M, 128 bytes of each) for "lklctl bundle" and
for the report after a crash. To write a file of that name, say ./ring.

  lklrun --capture trace.pcapng -- curl http://example.com/
  lklrun --capture web.pcapng,filter='tcp port 80' -- ./app
  lklctl capture -w trace.pcapng     # while the stack runs
`

const configurationTopic = `Each setting can come from several places. Later ones take precedence:

  1. LKL_HIJACK_* and the file named by LKL_HIJACK_CONFIG_FILE
  2. the configuration file, JSON with comments: --config FILE, $LKLRUN_CONFIG
     or ~/.config/lklrun/config.json
  3. LKLRUN_* variables: a flag's name in capitals, such as LKLRUN_STACK;
     separate several values with semicolons
  4. flags

Each sysctl is a setting of its own. A list, such as the interfaces, comes from
one source only.

--profile NAME applies a named set of settings; flags override it. "lklrun
profiles" lists the profiles: built-in ones, NAME.json in /etc/lklrun/profiles
and in ~/.config/lklrun/profiles, and "profiles" in the configuration file. If a
name occurs several times, the last one applies.

  lklrun config --explain --profile mobile    # each value and its origin
  lklrun config --check lab.json              # check a file
  lklrun config --schema                      # JSON Schema for editors
`

const labsTopic = `A topology file describes a lab: nodes, each a stack of its own, and wires that
join them. It is JSON with comments.

  {
    "wires": {"a": {"delay": "20ms", "rate": "100mbit"}, "b": {"loss": "1%"}},
    "nodes": {
      "client": {"wires": ["a", "b"]},
      "server": {"wires": ["a", "b"], "run": "iperf3 -s", "server": true},
    },
    "steps": [
      {"on": "client", "run": "iperf3 -c server -t 5", "background": true},
      {"wait": "1s"}, {"wire": "a", "set": "down"},
      {"wait": "1s"}, {"wire": "a", "set": "up"},
    ],
  }

lklrun assigns the addresses: 10.0.1.0/24 to the first wire, 10.0.2.0/24 to the
second one, and so on, in the order of their names. Nodes with "router": true
forward packets, and all nodes get the routes. Each node reaches the others by
their names. server.b is the address of the node server at the wire b.

Settings of a wire apply to each direction. "server": true means that the lab is
up when the program listens, and that the node announces all its addresses to
MPTCP clients.

"vars": {"loss": "1%"} gives ${loss} in a string this value, and --var loss=5%
another one. ${dir} is the folder of the file. "report": ["rate"] in a step
takes its output line rate=VALUE as a result. "report": {"resent":
"TcpRetransSegs"} in a node does so with a counter of its kernel. "lklrun
matrix" compares the results of several runs.

  lklrun lab run FILE            # start, perform the steps, end; for CI
  lklrun lab replay DIR          # repeat what lab run --record has recorded
  lklrun lab up FILE             # start in the background
  lklrun lab exec NODE -- CMD    # run a program on a node
  lklrun lab set WIRE down       # cut a wire; up brings it back
  lklrun lab up --explain FILE   # print addresses, routes and names
  lklrun lab --schema            # JSON Schema, for editors
  lklctl path -n LAB.NODE eth0   # each node is an instance of lklrun
`

const exitTopic = `lklrun exits with the status of the program. If a signal ended the program,
lklrun ends by the same signal, except SIGKILL, which becomes 137. Otherwise:

  2      the command line asks for something the host or the stack does not
         allow; the program was not started
  123    the program exited with 0 but did not meet --require
  125    lklrun, the stack or the connection to the device failed
  126    the program cannot be executed
  127    the program was not found

"lklrun ab", "lklrun matrix" and "lklrun test" exit with 1 if a run or a test
failed. "lklrun doctor" exits with 1 if the command, or without one any program,
cannot run.

--require checks at the end what the program used:

  stack   it opened a socket on the stack, and none was refused
  mptcp   it also had an MPTCP connection, and none was plain TCP or fell back.
          Interfaces of type user alone do not allow this: TCP ends at their
          gateway

  lklrun --require mptcp --if tap:tap0,ip=192.0.2.2/24 -- curl http://192.0.2.1/
`

// allTopics returns the list of flags, followed by the topics.
func allTopics(root *cobra.Command) []cli.Topic {
	flags := cli.Topic{Name: "flags", Short: "every flag of a run", Make: func() string { return root.LocalFlags().FlagUsagesWrapped(80) }}
	return append([]cli.Topic{flags}, topics...)
}
