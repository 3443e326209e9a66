// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lklrun/lklrun/pkg/lab"
)

// A client and a server, over two paths with 1 % loss. MPTCP uses both paths.
func Example() {
	ctx := context.Background()
	t := lab.Shape{
		Paths:  2,
		Wire:   lab.Wire{Delay: "5ms", Rate: "50mbit", Loss: "1%", Seed: 7},
		Server: lab.Command{"iperf3", "-s"},
	}.Topology()
	l, err := lab.Up(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Down(ctx) }()

	if out, err := l.Command(ctx, "client", "iperf3", "-c", "server", "-n", "1M").CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}
	counters, err := l.Counters(ctx, "client")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("both paths joined:", counters["MPTcpExtMPJoinSynAckRx"] > 0)
	// Output:
	// both paths joined: true
}

// A download continues when one of two paths is cut.
func ExampleLab_Set() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := []byte(strings.Repeat("All these bytes arrive.\n", 200_000))
	if err := os.WriteFile(filepath.Join(folder, "file"), file, 0o644); err != nil {
		log.Fatal(err)
	}
	t := lab.Shape{
		Paths:  2,
		Wire:   lab.Wire{Delay: "5ms", Rate: "50mbit"},
		Server: lab.Command{"python3", "-m", "http.server", "--directory", folder, "80"},
	}.Topology()
	l, err := lab.Up(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Down(ctx) }()

	curl := l.Command(ctx, "client", "curl", "-sS", "http://server/file")
	out, err := curl.StdoutPipe()
	if err == nil {
		err = curl.Start()
	}
	if err != nil {
		log.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, out, 1_000_000); err != nil {
		log.Fatal(err)
	}
	if err := l.Set(ctx, "a", "down"); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(sum, out); err != nil {
		log.Fatal(err)
	}
	fmt.Println("status:", curl.Wait())
	fmt.Println("the bytes are right:", [32]byte(sum.Sum(nil)) == sha256.Sum256(file))
	// Output:
	// status: <nil>
	// the bytes are right: true
}

// One program, with all its packets in a file. The file also has those that the wire loses.
func ExampleLab_Capture() {
	ctx := context.Background()
	l, err := lab.Up(ctx, lab.Shape{Paths: 1, Wire: lab.Wire{Loss: "100%"}}.Topology(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Down(ctx) }()
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	file := filepath.Join(folder, "ping.pcapng")
	c, err := l.Capture(ctx, file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ping:", l.Command(ctx, "client", "ping", "-c", "1", "-W", "1", "server").Run())
	if err := c.Stop(); err != nil {
		log.Fatal(err)
	}
	out, err := exec.Command("tcpdump", "-nr", file, "arp").Output()
	fmt.Println("captured:", strings.Contains(string(out), "who-has 10.0.1.2"), err)
	// Output:
	// ping: exit status 1
	// captured: true <nil>
}

// A topology from a file, with a router and steps.
func ExampleLab_Run() {
	ctx := context.Background()
	t, err := lab.Parse("router.json", []byte(`{
	  "wires": {"near": {"mtu": 1400}},
	  "nodes": {
	    "client": {"wires": ["near"]},
	    "r": {"wires": ["near", "far"], "router": true},
	    "server": {"wires": ["far"]},
	  },
	  "steps": [
	    {"on": "client", "run": "ping -c 1 server"},
	    {"on": "client", "run": ["ping", "-c", "1", "-M", "do", "-s", "1400", "server"], "expect": 1},
	  ],
	}`))
	if err != nil {
		log.Fatal(err)
	}
	l, err := lab.Up(ctx, t, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Down(ctx) }()

	results, err := l.Run(ctx, lab.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.What, r.OK)
	}
	// Output:
	// client: ping -c 1 server true
	// client: ping -c 1 -M do -s 1400 server (expect status 1) true
}
