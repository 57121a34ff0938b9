package v1alpha1_test

import (
	"strings"
	"testing"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

func TestParseAWSCredentials(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want cloudv1alpha1.AWSCredentials
		err  string
	}{
		{`{"accessKeyId":"a","accessKeySecret":"b","sessionToken":"c"}`, cloudv1alpha1.AWSCredentials{AccessKeyID: "a", AccessKeySecret: "b", SessionToken: "c"}, ""},
		{`{"roleArn":"r","externalId":"e"}`, cloudv1alpha1.AWSCredentials{RoleARN: "r", ExternalID: "e"}, ""},
		{`{"accessKeyId":"a"}`, cloudv1alpha1.AWSCredentials{}, "set roleArn, or accessKeyId and accessKeySecret"},
		{`{}`, cloudv1alpha1.AWSCredentials{}, "set roleArn, or accessKeyId and accessKeySecret"},
		{`null`, cloudv1alpha1.AWSCredentials{}, "set roleArn, or accessKeyId and accessKeySecret"},
		{``, cloudv1alpha1.AWSCredentials{}, "is not a JSON object"},
		{`hush`, cloudv1alpha1.AWSCredentials{}, "is not a JSON object"},
		{`"hush"`, cloudv1alpha1.AWSCredentials{}, "is not a JSON object"},
		{`{"accessKeySecret":["hush"]}`, cloudv1alpha1.AWSCredentials{}, "accessKeySecret is not a string"},
		{`{"roleArn":"` + strings.Repeat("r", cloudv1alpha1.MaxCredentials) + `"}`, cloudv1alpha1.AWSCredentials{}, "is 65550 bytes long, at most 65536 are read"},
	} {
		got, err := cloudv1alpha1.ParseAWSCredentials([]byte(tt.in))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("ParseAWSCredentials(%.60s) = %+v, %q; want %+v, %q", tt.in, got, text, tt.want, tt.err)
		}
	}
}

func TestParseAzureCredentials(t *testing.T) {
	for _, tt := range []struct{ in, err string }{
		{`{"subscriptionId":"a","clientId":"b","tenantId":"c","clientKey":"d"}`, ""},
		{`{"subscriptionId":"a","clientId":"b","tenantId":"c","sessionToken":"d"}`, ""},
		{`{"subscriptionId":"a","clientId":"b","tenantId":"c"}`, "set clientKey, sessionToken or identity"},
		{`{"subscriptionId":"a","identity":"WorkloadIdentity"}`, ""},
		{`{"identity":"ManagedIdentity"}`, "set subscriptionId"},
		{`{"subscriptionId":"a","identity":"managed"}`, "identity is neither WorkloadIdentity nor ManagedIdentity"},
		{`{"subscriptionId":"a","clientId":"b","tenantId":"c","clientKey":"d","identity":"ManagedIdentity"}`, "identity goes with neither clientKey nor sessionToken"},
		{`{"subscriptionId":" ","clientId":"b","tenantId":"c","clientKey":"d"}`, "set subscriptionId"},
		{`{"subscriptionId":"a","clientId":"b","clientKey":"d"}`, "set tenantId"},
		{`[]`, "is not a JSON object"},
	} {
		_, err := cloudv1alpha1.ParseAzureCredentials([]byte(tt.in))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != tt.err {
			t.Errorf("ParseAzureCredentials(%s) = %q, want %q", tt.in, text, tt.err)
		}
	}
}

// FuzzCredentials: no error quotes a secret, whatever is around it.
func FuzzCredentials(f *testing.F) {
	f.Add(`{"accessKeyId":"`, `"}`)
	f.Add(`{"`, `":1}`)
	f.Add(``, `}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "wJalrXUtnFEMI"
		data := []byte(before + secret + after)
		_, aws := cloudv1alpha1.ParseAWSCredentials(data)
		_, azure := cloudv1alpha1.ParseAzureCredentials(data)
		for _, err := range []error{aws, azure} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("quotes the secret: %v", err)
			}
		}
	})
}
