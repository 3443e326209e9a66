// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestParseCapture(t *testing.T) {
	for _, spec := range []string{"a.pcapng", "/tmp/a=b.pcapng", "a,snap=128", "a,snap=60,if=eth0,if=lo,filter=tcp port 80 or (udp, if you like)"} {
		c, err := ParseCapture(spec)
		if err != nil || c.String() != spec {
			t.Errorf("%s: %+v, %v", spec, c, err)
		}
	}
	for spec, want := range map[string]string{
		"":                    `"": no file; expected FILE`,
		"-":                   `"-": standard output is the command's own`,
		"snap=128":            `"snap=128": the file comes first`,
		"a,snap=":             `"a,snap=": snap: no value`,
		"a,snap=59":           `"a,snap=59": snap: "59"; expected bytes, from 60 to 262144`,
		"a,snap=99,snap=":     `"a,snap=99,snap=": snap: no value`,
		"a,snap=99,snap=9999": `"a,snap=99,snap=9999": snap: given twice`,
		"a,if=":               `"a,if=": if: no value`,
		"a,if=eth0,if=eth0":   `"a,if=eth0,if=eth0": if: eth0: given twice`,
		"a,if=a/b":            `"a,if=a/b": if: `,
		"a,filter=":           `"a,filter=": filter: no value`,
		"a,size=3":            `"a,size=3": "size": unknown key; known are snap, if and, as the last, filter`,
	} {
		if c, err := ParseCapture(spec); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v\nwant %s...", spec, c, err, want)
		}
	}
	var r Run
	if err := addCapture(&r, "a"); err != nil {
		t.Fatal(err)
	}
	if err := addCapture(&r, "a,snap=128"); err == nil || err.Error() != `"a": the file is written twice` {
		t.Error(err)
	}
}
