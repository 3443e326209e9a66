// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// toolLimit bounds one call of iptables. toolWait is the time in seconds that
// the call may wait for other programs that change the rules.
const (
	toolLimit = 10 * time.Second
	toolWait  = "5"
)

// tool is the program iptables or ip6tables.
type tool struct {
	path string
	six  bool
	nft  bool // it stores its rules in nftables
}

// findTool finds the program. Each call runs the program, because the
// administrator can change which program the name refers to.
func findTool(ctx context.Context, six bool) (*tool, error) {
	name := "iptables"
	if six {
		name = "ip6tables"
	}
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin/", "/sbin/", "/system/bin/"} { // not in the PATH of every user
		if err == nil {
			break
		}
		path, err = exec.LookPath(dir + name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: the program is not installed", name, errLacking)
	}
	t := &tool{path: path, six: six}
	out, err := t.exec(ctx, t.path, "", "-V")
	if err != nil {
		return nil, err
	}
	t.nft = strings.Contains(out, "nf_tables")
	return t, nil
}

func (t *tool) run(ctx context.Context, table string, args ...string) (string, error) {
	return t.exec(ctx, t.path, "", slices.Concat([]string{"-w", toolWait, "-t", table}, args)...)
}

// restore applies all lines or none.
func (t *tool) restore(ctx context.Context, table string, lines [][]string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", table)
	for _, l := range lines {
		b.WriteString(strings.Join(l, " ") + "\n")
	}
	b.WriteString("COMMIT\n")
	_, err := t.exec(ctx, t.path+"-restore", b.String(), "-w", toolWait, "-n")
	return err
}

func (t *tool) exec(ctx context.Context, path, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	// Ctrl-C must reach lklrun only, which then needs this program for its
	// undo.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	said := strings.Split(strings.TrimSpace(stderr.String()), "\n")[0]
	if said == "" {
		said = err.Error()
	}
	return "", fmt.Errorf("%s %s: %s", path, strings.Join(args, " "), said)
}

// legacyTables lists the legacy tables that the kernel has in this network
// namespace.
func legacyTables(six bool) []string {
	path := "/proc/thread-self/net/ip_tables_names"
	if six {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil // the kernel has none
	}
	return strings.Fields(string(b))
}

// compatChain reports whether nftables has the table and the chain in which
// iptables stores its rules.
func compatChain(ctx context.Context, six bool, table, chain string) (chainThere, tableThere bool, err error) {
	c, err := nft{}.open(ctx)
	if err != nil {
		return false, false, err
	}
	chains, tableThere, err := chainsOf(c, compatTable(six, table))
	for _, ch := range chains {
		chainThere = chainThere || ch.Name == chain
	}
	return chainThere, tableThere, err
}

func compatTable(six bool, table string) *nftables.Table {
	family := nftables.TableFamilyIPv4
	if six {
		family = nftables.TableFamilyIPv6
	}
	return &nftables.Table{Name: table, Family: family}
}

// removeCompat removes a chain that iptables created, and its table if iptables
// created that too. It keeps those that another program uses in the meantime.
func removeCompat(ctx context.Context, six bool, table, chain string, tableToo bool) error {
	c, err := nft{}.open(ctx)
	if err != nil {
		return err
	}
	t := compatTable(six, table)
	chains, there, err := chainsOf(c, t)
	if err != nil || !there {
		return err
	}
	i := slices.IndexFunc(chains, func(ch *nftables.Chain) bool { return ch.Name == chain })
	if i >= 0 {
		rules, err := c.GetRules(t, chains[i])
		if err != nil || len(rules) > 0 {
			return err
		}
		c.DelChain(chains[i])
	}
	if tableToo && (len(chains) == 0 || len(chains) == 1 && i >= 0) {
		c.DelTable(t)
	}
	// EBUSY: another program has added a rule in the meantime.
	if err := c.Flush(); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the empty chain %s of table %s: %w", chain, table, err)
	}
	return nil
}
