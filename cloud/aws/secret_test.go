package aws_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"isobar.dev/cloud/aws"
)

func TestParseSecret(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want aws.Credentials
		ok   bool
	}{
		{`{"accessKeyId":"a","accessKeySecret":"b"}`, aws.Credentials{AccessKeyID: "a", AccessKeySecret: "b"}, true},
		{`{"accessKeyId":"a","accessKeySecret":"b","sessionToken":"c"}`, aws.Credentials{AccessKeyID: "a", AccessKeySecret: "b", SessionToken: "c"}, true},
		{`{"roleArn":"arn","externalId":"x"}`, aws.Credentials{RoleARN: "arn", ExternalID: "x"}, true},
		{`{"roleArn":"arn","accessKeyId":"","accessKeySecret":"","sessionToken":""}`, aws.Credentials{RoleARN: "arn"}, true},
		{" {\"roleArn\":\"arn\"}\n", aws.Credentials{RoleARN: "arn"}, true},
		{`{}`, aws.Credentials{}, false},
		{``, aws.Credentials{}, false},
		{`null`, aws.Credentials{}, false},
		{`[]`, aws.Credentials{}, false},
		{`{"accessKeyId":"a"}`, aws.Credentials{}, false},
		{`{"accessKeySecret":"a"}`, aws.Credentials{}, false},
		{`{"roleArn":"arn","sessionToken":"c"}`, aws.Credentials{RoleARN: "arn"}, true}, // a token of no keys
		{`{"accessKeyId":"a","accessKeySecret":"b","externalId":"x"}`, aws.Credentials{AccessKeyID: "a", AccessKeySecret: "b"}, true},    // for no role
		{`{"accessKeyId":1,"accessKeySecret":"b"}`, aws.Credentials{}, false},                                                            // not a string
		{`{"accessKeyId":"a","accessKeySecret":"b","region":"eu"}`, aws.Credentials{AccessKeyID: "a", AccessKeySecret: "b"}, true},       // not ours
		{`{"accessKeyId":"a","accessKeySecret":"b"}{}`, aws.Credentials{}, false},                                                        // more
		{`{"roleArn":"` + strings.Repeat("a", 64<<10) + `"}`, aws.Credentials{}, false},                                                  // too long
		{`{"accessKeyId":"a","accessKeySecret":"b"} trailing`, aws.Credentials{}, false},                                                 // more
		{`eyJhY2Nlc3NLZXlJZCI6ImEiLCJhY2Nlc3NLZXlTZWNyZXQiOiJiIn0=`, aws.Credentials{}, false},                                           // still base64
		{`{"accessKeyId":"a","accessKeySecret":"b","sessionToken":null}`, aws.Credentials{AccessKeyID: "a", AccessKeySecret: "b"}, true}, // absent
	} {
		got, err := aws.ParseSecret([]byte(tt.in))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParseSecret(%.80s) = %v, %v; want ok %t", tt.in, got, err, tt.ok)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add([]byte(`{"accessKeyId":"AKIAsecret","accessKeySecret":"topsecret"}`))
	f.Add([]byte(`{"accessKeyId":"AKIAsecret","accessKeySecret":topsecret}`))
	f.Add([]byte(`{"topsecret":"topsecret"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := aws.ParseSecret(b)
		if err != nil {
			if bytes.Contains(b, []byte("topsecret")) && strings.Contains(err.Error(), "topsecret") {
				t.Errorf("the error tells the secret: %v", err)
			}
			return
		}
		again, err := json.Marshal(map[string]string{"accessKeyId": c.AccessKeyID, "accessKeySecret": c.AccessKeySecret,
			"sessionToken": c.SessionToken, "roleArn": c.RoleARN, "externalId": c.ExternalID})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := aws.ParseSecret(again); err != nil || d != c {
			t.Errorf("written and parsed again: %v", err)
		}
	})
}

// No way of printing tells a secret.
func TestCredentialsDoNotPrint(t *testing.T) {
	c := aws.Credentials{AccessKeyID: "AKIAsecret", AccessKeySecret: "topsecret", SessionToken: "topsecret", ExternalID: "topsecret", RoleARN: "arn:role"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "c", c, "p", &c, "cfg", aws.Config{Credentials: c})
	js, err := json.Marshal(aws.Config{Credentials: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(c), fmt.Sprintf("%v %+v %#v %s %q %x %d", c, c, c, c, c, c, c), fmt.Sprintf("%v %+v %#v", &c, aws.Config{Credentials: c}, []aws.Credentials{c}),
		log.String(), string(js),
	} {
		if strings.Contains(s, "secret") || strings.Contains(s, fmt.Sprintf("%x", "topsecret")) {
			t.Errorf("it prints: %s", s)
		}
	}
}
