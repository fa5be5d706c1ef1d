"""Names that are worth a question under any domain: the default word list of name discovery."""

from typing import Final

_WORDS: Final = """
account accounts ad admin alpha analytics android api api1 api2 app apps assets atlas auth autodiscover
autoconfig backend backup beta bi billing blog board bugs build calendar career careers cart cdn chat ci
citrix client cloud cms code community confluence connect console corp cpanel crm customer dashboard data
db demo dev developer developers devops dns docker docs download downloads edge email erp events exchange
extranet feedback files forum ftp gateway git gitlab grafana graphql harbor health help helpdesk home hr
id idp images imap img info internal intranet ios iot jenkins jira jobs kb kibana kubernetes lab labs ldap
legacy lists live login logs m mail mail1 mail2 manage marketing media meet metrics mobile monitor
monitoring mx mx1 mx2 mysql new news ns ns1 ns2 ns3 ns4 office old openvpn ops orders origin owa panel
partner partners pay payments pop pop3 portal postgres preprod preview private prod production prometheus
proxy qa queue rabbitmq rdp redis registry relay remote repo reports rest s3 sandbox search secure
security sentry server sftp share shop sip smtp sonar sql ssh sso stage staging static stats status
storage store stream support survey svn sync team test test1 test2 testing tools track training uat
uploads v1 v2 vault video vpn vpn1 web web1 web2 webdisk webmail wiki wordpress ws www www1 www2 www3
zabbix
"""

DEFAULT_WORDS: Final = tuple(_WORDS.split())
"""First labels, each once."""
