// SPDX-License-Identifier: Apache-2.0

package programs

import (
	_ "embed"
	"os/exec"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// python is a command line for the system's python3.
func python(program string, args ...string) []string {
	return append([]string{"/usr/bin/python3", "-c", program}, args...)
}

// TestProgRedis runs redis-server with 200 pipelining clients at once, a large value,
// and a subscriber.
func TestProgRedis(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"redis-server", "redis-benchmark", "redis-cli"},
		inside: asServer,
		port:   6379,
		server: func(dir string) []string {
			return []string{"redis-server", "--save", "", "--dir", dir, "--bind", "0.0.0.0", "--protected-mode", "no"}
		},
		client: func(c *client) {
			said := c.ok("redis-benchmark", "-h", c.addr, "-c", "200", "-P", "16", "-n", "40000", "-t", "set,get,lrange_100", "--csv")
			if n := len(kit.Lines(said)); n != 5 { // a header, set, get, lpush (which lrange needs) and lrange
				c.Errorf("redis-benchmark: %s", said)
			}
			kit.Random(c, c.tmp+"/value", 4<<20)
			got := c.sh("redis-cli -h %s -x set big <%s >/dev/null && redis-cli -h %[1]s --raw get big | head -c 4194304 | sha256sum", c.addr, c.tmp+"/value")
			if !strings.HasPrefix(got, sum(c.T, c.tmp+"/value")) {
				c.Errorf("a value of 4 MiB came back as %s", got)
			}
			// A subscriber on one connection receives from a publisher on another.
			c.sh(`redis-cli -h %s subscribe news >%s/heard & p=$!
				until [ "$(redis-cli -h %[1]s publish news the-news)" -gt 0 ]; do :; done
				until grep -q the-news %[2]s/heard; do :; done
				kill $p`, c.addr, c.tmp)
		},
	})
}

//go:embed testdata/memcached_client.py
var memcachedClient string

// TestProgMemcached runs memcached with four threads, by TCP and UDP.
func TestProgMemcached(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs:  []string{"memcached"},
		inside: asServer | asClient,
		port:   11211,
		server: func(string) []string {
			return []string{"memcached", "-u", "root", "-l", "0.0.0.0", "-U", "11211", "-t", "4", "-c", "512"}
		},
		client: func(c *client) {
			c.says("100 stored, 100 right, STORED over UDP\n", python(memcachedClient, c.addr)...)
		},
	})
}

// TestProgPostgres runs PostgreSQL, which starts a process for each connection and does
// not run as root.
func TestProgPostgres(t *testing.T) {
	s := kit.NewSite(t)
	const bin = "/usr/lib/postgresql/15/bin/"
	as := []string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"}
	testPair(s, pair{
		needs: []string{bin + "postgres", bin + "psql", bin + "pgbench", "setpriv"},
		heavy: true,
		port:  5432,
		server: func(dir string) []string {
			kit.Host.Run(t, "chown", "postgres", dir)
			initdb := exec.Command(as[0], append(as[1:], bin+"initdb", "-N", "-A", "trust", "-D", dir+"/data")...)
			initdb.Dir = dir
			kit.OK(t, kit.Limit, initdb)
			return append(as, bin+"postgres", "-D", dir+"/data", "-c", "listen_addresses=*", "-c", "unix_socket_directories="+dir, "-c", "fsync=off", "-c", "log_min_messages=fatal",
				"-c", "hba_file="+kit.WriteFile(t, dir+"/hba", "host all all all trust\n"))
		},
		client: func(c *client) {
			psql := func(query string) []string {
				return []string{bin + "psql", "-X", "-h", c.addr, "-U", "postgres", "-qAtc", query}
			}
			kit.WaitFor(c, "the database", kit.Limit, func() bool {
				cmd := c.in(psql("select 1")...)
				return cmd.Run() == nil
			})
			c.says("500000|125000250000\n", psql("create temp table t as select generate_series(1, 500000) n; select count(*), sum(n) from t")...)
			got := c.sh(`%spsql -X -h %s -U postgres -Atc 'copy (select generate_series(1, 500000)) to stdout' | sha256sum`, bin, c.addr)
			if want := kit.OK(c, kit.Limit, exec.Command("sh", "-c", "seq 500000 | sha256sum")); got != want {
				c.Errorf("half a million rows have the sum %s, want %s", got, want)
			}
			// Each of 200 transactions uses a new connection and so a new process.
			said := c.sh(`%spgbench -h %s -U postgres -i -q postgres 2>/dev/null && %[1]spgbench -h %[2]s -U postgres -C -c 10 -j 2 -t 20 -S postgres`, bin, c.addr)
			if !strings.Contains(said, "actually processed: 200/200") || !strings.Contains(said, "failed transactions: 0 ") {
				c.Errorf("pgbench: %s", said)
			}
		},
	})
}
